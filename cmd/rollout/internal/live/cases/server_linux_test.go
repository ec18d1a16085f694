package cases_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

type server struct {
	l     *Letta
	name  string
	port  int
	url   string
	dir   string // its working directory and home
	p     *process
	spent time.Duration // CPU time of the processes before p
}

func newServer(t *testing.T, l *Letta, i int) *server {
	t.Helper()
	s := &server{l: l, name: "letta-" + strconv.Itoa(i), port: freePort(t), dir: filepath.Join(l.dir, "home-"+strconv.Itoa(i))}
	s.url = "http://127.0.0.1:" + strconv.Itoa(s.port)
	noError(t, os.Mkdir(s.dir, 0o755))
	return s
}

// start starts the process. The server answers after ten seconds or more.
func (s *server) start(t *testing.T) {
	t.Helper()
	l := s.l
	cmd := exec.Command(l.in.inVenv("letta"), "server", "--host", "127.0.0.1", "--port", strconv.Itoa(s.port)) // the test ends it
	cmd.Dir = s.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + s.dir, "LETTA_DIR=" + s.dir, "TMPDIR=" + s.dir,
		// Without ssl=disable a server with a pool requires TLS, and one without a pool asks for TLS on
		// every new connection.
		"LETTA_PG_URI=" + l.Postgres.uri() + "?ssl=disable",
		"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1",
		// A small environment for tools saves 3.5 s of CPU per tool call. A reload would empty it.
		"TOOL_EXEC_DIR=" + filepath.Join(l.dir, "tools"), "TOOL_EXEC_VENV_NAME=venv", "TOOL_EXEC_AUTORELOAD_VENV=false",
	}
	if l.cfg.Password != "" {
		cmd.Env = append(cmd.Env, "LETTA_SERVER_SECURE=true", "LETTA_SERVER_PASSWORD="+l.cfg.Password)
	}
	if l.cfg.NoTraces {
		cmd.Env = append(cmd.Env, "LETTA_TRACK_PROVIDER_TRACE=false")
	}
	if l.cfg.Pool {
		cmd.Env = append(cmd.Env, "LETTA_DISABLE_SQLALCHEMY_POOLING=false", "LETTA_PG_POOL_SIZE=50", "LETTA_PG_MAX_OVERFLOW=50")
	}
	cmd.Env = append(cmd.Env, l.cfg.Env...)
	p := startProcess(t, l.dir, s.name, cmd)
	if s.p != nil {
		s.spent += s.p.cpu()
	}
	s.p = p
}

// wait waits until the server is healthy.
func (s *server) wait(t *testing.T) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/health/", nil))(t)
	if err := waitFor(4*time.Minute, s.p.unlessEnded(func() bool {
		resp, err := client.Do(req)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})); err != nil {
		t.Fatalf("%s: %v\n%s", s.name, err, s.p.tail(60))
	}
}
