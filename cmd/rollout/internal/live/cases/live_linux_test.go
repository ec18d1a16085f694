package cases_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A Config describes the servers to start. The zero value is one server without a password, and
// PostgreSQL with enough connections for 100 rollouts.
type Config struct {
	// Servers is the number of Letta processes that share the database. Default 1.
	Servers int
	// Password is the password that the servers require. Default: none.
	Password string
	// NoTraces disables storing the requests to the engine.
	NoTraces bool
	// Pool makes the servers pool their PostgreSQL connections. By default they do not.
	Pool bool
	// MaxConnections is PostgreSQL's limit. A rollout takes 3 to 4 connections. Default 400.
	MaxConnections int
	// Env has more variables of the servers, as NAME=value.
	Env []string
}

// A Letta is PostgreSQL and its servers. It ends with the test that started it.
type Letta struct {
	// URLs are the addresses of the servers, without /v1.
	URLs []string
	// Model is the folder with tokenizer.json and tokenizer_config.json of Qwen3, including its
	// chat template. An engine must use this path as the name of its model, so that Letta finds the
	// tokenizer.
	Model    string
	Postgres *Postgres

	cfg     Config
	in      installation
	dir     string
	servers []*server
}

// Start starts PostgreSQL and the servers, and returns when all are healthy. It skips the test if
// there is no installation. A start takes about 15 s of CPU per server.
func Start(t *testing.T, cfg Config) *Letta {
	t.Helper()
	home := os.Getenv("ROLLOUT_LETTA")
	if home == "" {
		t.Skip("NOT TESTED against a real Letta server: ROLLOUT_LETTA names no installation; make e2e-letta makes one")
	}
	cfg.Servers = max(cfg.Servers, 1)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 400)
	in := installation{home}
	in.open(t)
	dir := newFolder(t)
	k := keep(t, dir)
	l := &Letta{Model: in.model(), cfg: cfg, in: in, dir: dir}
	l.Postgres = &Postgres{in: in, dir: dir, MaxConnections: cfg.MaxConnections}
	t.Cleanup(func() {
		if err := errors.Join(l.stop(t), k.release()); err != nil {
			t.Errorf("stop Letta: %v", err)
		}
	})
	copyFolder(t, filepath.Join(in.state(), "pg"), l.Postgres.data())
	l.Postgres.own(t)
	l.Postgres.start(t)
	// The servers of one database share the folder of the tools, because the database has its path.
	tools := filepath.Join(dir, "tools")
	noError(t, errors.Join(os.Mkdir(tools, 0o755), os.Symlink(filepath.Join(home, "tools"), filepath.Join(tools, "venv"))))
	for i := range cfg.Servers {
		s := newServer(t, l, i)
		l.servers, l.URLs = append(l.servers, s), append(l.URLs, s.url)
		s.start(t)
		if i == 0 { // the first server fills the tables alone, because two that do this at once conflict
			s.wait(t)
		}
	}
	for _, s := range l.servers {
		s.wait(t)
	}
	return l
}

// stop ends all processes. If the test failed, it logs the ends of the logs and saves them.
func (l *Letta) stop(t *testing.T) error {
	t.Helper()
	var errs []error
	for _, s := range l.servers {
		if s.p != nil {
			errs = append(errs, s.p.kill())
		}
	}
	if l.Postgres.p != nil {
		errs = append(errs, l.Postgres.p.kill())
	}
	if t.Failed() {
		keep := filepath.Join(filepath.Dir(l.in.home), "letta-logs", strings.ReplaceAll(t.Name(), "/", "-"))
		for _, s := range l.servers {
			if s.p != nil {
				t.Logf("the end of %s, which is kept as %s:\n%s", s.p.name, filepath.Join(keep, filepath.Base(s.p.log)), s.p.tail(60))
			}
		}
		errs = append(errs, os.RemoveAll(keep), os.MkdirAll(keep, 0o755), os.CopyFS(keep, os.DirFS(filepath.Join(l.dir, "logs"))))
	}
	return errors.Join(errs...)
}

// Kill kills a server.
func (l *Letta) Kill(t *testing.T, i int) {
	t.Helper()
	noError(t, l.servers[i].p.kill())
}

// Restart kills a server if necessary and starts it again on the same port. It returns when the
// server is healthy.
func (l *Letta) Restart(t *testing.T, i int) {
	t.Helper()
	s := l.servers[i]
	noError(t, s.p.kill())
	s.start(t)
	s.wait(t)
}

// Pool sets whether servers started from now on pool their PostgreSQL connections.
func (l *Letta) Pool(on bool) { l.cfg.Pool = on }

// Traces sets whether servers started from now on store the requests to the engine.
func (l *Letta) Traces(on bool) { l.cfg.NoTraces = !on }

// Env replaces the additional variables of servers started from now on.
func (l *Letta) Env(vars ...string) { l.cfg.Env = vars }

// CPU returns the CPU time so far of the servers, their tools and PostgreSQL.
func (l *Letta) CPU() time.Duration {
	sum := l.Postgres.CPU()
	for _, s := range l.servers {
		sum += s.spent + s.p.cpu()
	}
	return sum
}

// Client returns a client of a server.
func (l *Letta) Client(t *testing.T, i int) *letta.Client {
	t.Helper()
	c := must(letta.NewClient(letta.ClientConfig{BaseURL: l.URLs[i], Password: letta.Secret(l.cfg.Password)}))(t)
	t.Cleanup(c.CloseIdle)
	return c
}

// do makes a request that package letta has no call for, and returns the body of the answer.
func (l *Letta) do(t *testing.T, method, path string, body any) []byte {
	t.Helper()
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	r := must(http.NewRequestWithContext(t.Context(), method, l.URLs[0]+path, bytes.NewReader(text)))(t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+l.cfg.Password)
	resp, err := http.DefaultClient.Do(r)
	noError(t, err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s: %v", method, path, resp.Status, answer, err)
	}
	return answer
}

// Provider creates a provider for the engine at the URL, which must be running, and returns the
// handle of its model. Sends return the model's tokens if the provider's name contains sglang.
func (l *Letta) Provider(t *testing.T, name, engine string) (handle string) {
	t.Helper()
	c := l.Client(t, 0)
	l.do(t, http.MethodPost, "/v1/providers/", map[string]any{"name": name, "provider_type": "sglang", "base_url": engine + "/v1", "api_key": ""})
	handle = name + "/" + l.Model
	// The server does not report a failure to list the engine's models.
	if found, err := c.FindModel(t.Context(), handle); err != nil || found.Model == nil {
		t.Fatal(fmt.Errorf("provider %s: the server has no model %s: %w", name, handle, err))
	}
	return handle
}

// NoAgents fails the test if the server has agents.
func (l *Letta) NoAgents(t *testing.T) {
	t.Helper()
	left := strings.Fields(l.Postgres.Query(t, "SELECT id FROM agents WHERE NOT is_deleted ORDER BY created_at"))
	if len(left) > 0 {
		t.Errorf("agents remain: %v", left)
	}
}
