package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

func collectFrom(t *testing.T, url, file string) (code int, stderr, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	path, tasks := writeFile(t, "run.yaml", []byte(file)), writeFile(t, "tasks.jsonl", []byte(`{"id": "a", "prompt": "Hi."}`+"\n"))
	var out, talk bytes.Buffer
	args := []string{"collect", "-c", path, "--server", url, "--model", simModel, "--tasks", tasks, "--out", dir}
	env := map[string]string{"TOKEN": "canary-token"}
	code = run(t.Context(), args, nil, &out, &talk, func(name string) string { return env[name] })
	return code, talk.String(), dir
}

func TestAgentSettingsReachTheServer(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	var mu sync.Mutex
	var posts []string // path and body
	url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodPost {
			mu.Lock()
			posts = append(posts, r.URL.Path+" "+string(body))
			mu.Unlock()
		}
		if h := r.Header; h.Get("X-Team") != "blue" || h.Get("X-Gate") != "canary-token" {
			t.Errorf("a request has X-Team %q, X-Gate %q", h.Get("X-Team"), h.Get("X-Gate"))
		}
		sim.ServeHTTP(w, r)
	}))
	code, talk, dir := collectFrom(t, url, `
server:
  headers: {X-Team: blue, X-Gate: "${env:TOKEN}"}
  read_bytes: 1MiB
  receive_buffer: 64KiB
agent:
  tags: [mine]
  override_model: sglang//models/qwen3
  override_system: Be brief.
  conversation: true
  client_tools:
    - name: bash
      parameters: {type: object, properties: {zeta: {type: number, default: 1.0}, alpha: {type: string}}}
      command: [cat]
      timeout: 5s
`)
	if code != exit.OK {
		t.Fatalf("exit %d: %s", code, talk)
	}
	for _, want := range []struct{ ending, text string }{
		{"/v1/agents/", `"mine"`},
		{"/v1/conversations/", ``},
		{"/messages", `"override_model":"sglang//models/qwen3"`},
		{"/messages", `"override_system":"Be brief."`},
		// The keys of a schema keep the order of the file in the prompt.
		{"/messages", `"client_tools":[{"name":"bash","parameters":{"type":"object","properties":{"zeta":{"type":"number","default":1.0},"alpha":{"type":"string"}}}}]`},
	} {
		if !slices.ContainsFunc(posts, func(post string) bool {
			path, body, _ := strings.Cut(post, " ")
			return strings.HasSuffix(path, want.ending) && strings.Contains(body, want.text)
		}) {
			t.Errorf("no POST to …%s holds %s", want.ending, want.text)
		}
	}
	b := must(os.ReadFile(filepath.Join(dir, runfolder.RunFile)))(t)
	var info runfolder.Info
	noError(t, json.Unmarshal(b, &info))
	if strings.Contains(string(b), "canary") || strings.Contains(string(b), "blue") {
		t.Errorf("run.json holds the value of a header: %s", info.Config["server"]["headers"])
	}
	contains(t, string(b), "${env:TOKEN}")
}

func TestOwnAuthorityAndClientCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(newSim(t, lettasim.Config{InputIDs: true}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are expected
	server.StartTLS()
	t.Cleanup(server.Close)

	// The client uses the server's own key pair.
	pair := server.TLS.Certificates[0]
	dir := t.TempDir()
	ca, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")
	write := func(path, kind string, der []byte) {
		noError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	write(ca, "CERTIFICATE", pair.Certificate[0])
	write(key, "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))(t))
	text := filepath.Join(dir, "text")
	noError(t, os.WriteFile(text, []byte("no PEM"), 0o600))
	for _, tt := range []struct {
		name, file string
		code       int
		says       string
	}{
		{"both", "server: {ca_file: " + ca + ", client_cert: " + ca + ", client_key: " + key + "}", exit.OK, ""},
		{"no authority", "server: {client_cert: " + ca + ", client_key: " + key + "}", exit.Unusable, "certificate"},
		{"no client certificate", "server: {ca_file: " + ca + "}", exit.Unusable, "certificate"},
		{"key alone", "server: {client_key: " + key + "}", exit.Usage, "server.client_cert: must be set together with server.client_key"},
		{"not PEM", "server: {ca_file: " + text + "}", exit.Usage, "server.ca_file: " + text + " contains no PEM certificate"},
		{"no file", "server: {ca_file: " + text + "x}", exit.Usage, "server.ca_file: open "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, talk, _ := collectFrom(t, server.URL, tt.file)
			if code != tt.code || !strings.Contains(talk, tt.says) {
				t.Errorf("exit %d, want %d with %q: %s", code, tt.code, tt.says, talk)
			}
		})
	}
}

// A simProcess is a simulated server in its own process, with a password.
type simProcess struct {
	*process
	url, password string
}

// startSim starts a simulated server at an address. Each server has its own password, so it answers
// only requests with its own headers.
func startSim(t *testing.T, addr, password string, args ...string) *simProcess {
	t.Helper()
	s := &simProcess{password: password}
	s.process, s.url = startServing(t, "", []string{"SIM_PASSWORD=" + password}, append([]string{
		"simulate", "--listen", addr, "--input-ids", "--tokens", "8,40", "--password", "${env:SIM_PASSWORD}",
	}, args...)...)
	return s
}

// metricOf reads a metric of one server from the metrics of a collector. It returns -1 if the
// metric is none yet.
func metricOf(p *process, name, endpoint, labels string) float64 {
	page := metricsAddress.FindString(p.said())
	if page == "" {
		return -1
	}
	n, err := metric(page, name+`\{[^}]*endpoint="`+regexp.QuoteMeta(endpoint)+`"[^}]*`+labels+`\}`)
	if err != nil {
		return -1
	}
	return n
}

// A run with three servers, each with its own headers and limit, uses a killed server again after
// its restart, and continues with another list of servers. No limit is exceeded, no secret is
// stored, and no sample is duplicated.
func TestServersOfARun(t *testing.T) {
	t.Parallel()
	slow := []string{"--latency", "200ms..600ms"}
	var sims []*simProcess
	bounds := []int{4, 6, 5}
	env := []string{}
	add := func(i int) {
		password := fmt.Sprintf("canary-%d-5up3r", i)
		sims = append(sims, startSim(t, "127.0.0.1:0", password, slow...))
		env = append(env, fmt.Sprintf("KEY%d=password %s", i, password))
	}
	for i := range bounds {
		add(i)
	}
	entry := func(i, most int, weight float64) string {
		return fmt.Sprintf("    - {url: %q, weight: %v, max_in_flight: %d, headers: {X-BARE-PASSWORD: \"${env:KEY%d}\"}}\n", sims[i].url, weight, most, i)
	}
	config := func(urls string) string {
		return writeFile(t, "run.yaml", []byte("server:\n  urls:\n"+urls+"agent: {model: "+simModel+"}\ntasks: {samples: 10}\nrun: {metrics_addr: \"127.0.0.1:0\", grace: 20s}\noutput: {shard_age: 1s}\n"))
	}
	dir := filepath.Join(t.TempDir(), "run")
	tasks := manyTasks(t, 600) // more than the run collects
	args := []string{"collect", "--tasks", tasks, "--out", dir, "-c"}

	p := startProgram(t, "rollout", env, append(args, config(entry(0, bounds[0], 1)+entry(1, bounds[1], 2)+entry(2, bounds[2], 0.5)))...)
	sent := func(i int) float64 { return metricOf(p, `rollout_http_requests_total`, sims[i].url, `,method="POST"`) }
	down := func(i int) float64 { return metricOf(p, "rollout_breaker_open", sims[i].url, "") }
	awaits := func(what string, done func() bool) {
		t.Helper()
		waitFor(t, what, func() bool { return done() || !p.alive() })
		if !p.alive() {
			t.Fatalf("the run ended before %s\n%s", what, p.said())
		}
	}
	awaits("all servers to be at work", func() bool { return sent(0) > 20 && sent(1) > 20 && sent(2) > 20 })
	for i, want := range bounds {
		if got := metricOf(p, "rollout_concurrency_ceiling", sims[i].url, ""); got != float64(want) {
			t.Errorf("server %d may have %v in flight, want %d", i, got, want)
		}
	}
	_ = p.cmd.Process.Signal(syscall.SIGUSR1) // it is alive
	awaits("a status with every server", func() bool {
		for i := range bounds {
			if !strings.Contains(p.said(), fmt.Sprintf("%s: ", sims[i].url)) || !strings.Contains(p.said(), fmt.Sprintf(" of %d; answers", bounds[i])) {
				return false
			}
		}
		return true
	})

	sims[1].kill()
	awaits("the dead server to count as down", func() bool { return down(1) == 1 })
	before := sent(0)
	awaits("the others to go on", func() bool { return sent(0) > before+20 })
	addr := strings.TrimPrefix(sims[1].url, "http://")
	sims[1] = startSim(t, addr, sims[1].password, slow...)
	awaits("the server to be back", func() bool { return down(1) == 0 })
	before = sent(1)
	awaits("the server to be used again", func() bool { return sent(1) > before+20 })
	_ = p.cmd.Process.Signal(os.Interrupt) // it is alive
	p.ends(t, 90*time.Second, exit.Interrupted)
	first := len(readDataset(t, dir).keys())

	// Another list: one server is gone, one is new, one has another limit.
	add(3)
	p = startProgram(t, "rollout", env, "collect", "--resume", "--out", dir, "-c", config(entry(0, 9, 1)+entry(3, 3, 1)))
	awaits("the new server to be at work", func() bool { return sent(3) > 20 && sent(0) > 20 })
	_ = p.cmd.Process.Signal(os.Interrupt) // it is alive
	p.ends(t, 90*time.Second, exit.Interrupted)
	// Without servers on the command line, the run uses its own, with the references of their
	// headers.
	p = startProgram(t, "rollout", append(env, "ROLLOUT_RUN_METRICS_ADDR=127.0.0.1:0"), "collect", "--resume", "--out", dir)
	awaits("the run's own servers to be at work", func() bool { return sent(3) > 20 && sent(0) > 20 })
	if got := metricOf(p, "rollout_concurrency_ceiling", sims[3].url, ""); got != 3 {
		t.Errorf("the new server may have %v in flight, want 3", got)
	}
	_ = p.cmd.Process.Signal(os.Interrupt) // it is alive
	p.ends(t, 90*time.Second, exit.Interrupted)

	got := readDataset(t, dir)
	got.once(t)
	if n := len(got.keys()); n <= first || len(got.failures) != 0 {
		t.Errorf("%d samples, %d of them before the resume; %d failed", n, first, len(got.failures))
	}
	// The other verbs also send each server its own headers.
	for _, verb := range [][]string{{"clean", "--dry-run", dir}, {"doctor", "--prompt", "Add 2 and 3.", "-c", config(entry(0, 4, 1) + entry(3, 4, 1))}} {
		cmd := exec.CommandContext(t.Context(), "rollout", verb...)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "agent-") {
			t.Errorf("rollout %v: %v\n%s", verb, err, out)
		}
	}
	notIn(t, dir, "canary-")
	for i, s := range sims {
		most := bounds[min(i, 2)]
		if i == 0 {
			most = 9
		}
		_ = s.cmd.Process.Signal(os.Interrupt) // it is alive
		s.wait(t, 30*time.Second)
		var n int
		if m := regexp.MustCompile(`at most (\d+) at once`).FindStringSubmatch(s.said()); m != nil {
			n, _ = strconv.Atoi(m[1]) // digits
		}
		if n == 0 || n > most {
			t.Errorf("server %d had %d sends at once, want at most %d:\n%s", i, n, most, s.said())
		}
	}
}

// notIn fails the test if a file of the folder contains a secret.
func notIn(t *testing.T, dir, secret string) {
	t.Helper()
	for name, text := range treeOf(t, dir) {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds a secret", name)
		}
	}
}
