package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A witness is a simulated server that records its requests.
type witness struct {
	sim *lettasim.Server

	mu      sync.Mutex
	headers []http.Header
	posts   []string // path and body
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	sim, err := lettasim.New(lettasim.Config{InputIDs: true})
	if err != nil {
		t.Fatal(err)
	}
	return &witness{sim: sim}
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.mu.Lock()
	w.headers = append(w.headers, r.Header.Clone())
	if r.Method == http.MethodPost {
		w.posts = append(w.posts, r.URL.Path+" "+string(body))
	}
	w.mu.Unlock()
	w.sim.ServeHTTP(rw, r)
}

// said reports whether the body of a POST to a path with this ending contains the text.
func (w *witness) said(ending, text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.posts {
		path, body, _ := strings.Cut(p, " ")
		if strings.HasSuffix(path, ending) && strings.Contains(body, text) {
			return true
		}
	}
	return false
}

func collectFrom(t *testing.T, url, file string, args ...string) (code int, stderr, dir string) {
	t.Helper()
	dir = t.TempDir()
	path, tasks := filepath.Join(dir, "run.yaml"), filepath.Join(dir, "tasks.jsonl")
	for name, text := range map[string]string{path: file, tasks: `{"id": "a", "prompt": "Hi."}` + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, talk bytes.Buffer
	args = append([]string{"collect", "-c", path, "--server", url, "--model", "sglang//models/qwen3", "--tasks", tasks, "--out", filepath.Join(dir, "run")}, args...)
	env := map[string]string{"TOKEN": "canary-token"}
	code = run(context.Background(), args, nil, &out, &talk, func(name string) string { return env[name] })
	return code, talk.String(), filepath.Join(dir, "run")
}

func TestAgentSettingsReachTheServer(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	code, talk, dir := collectFrom(t, server.URL, `
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
		if !w.said(want.ending, want.text) {
			t.Errorf("no POST to …%s holds %s", want.ending, want.text)
		}
	}
	for _, h := range w.headers {
		if h.Get("X-Team") != "blue" || h.Get("X-Gate") != "canary-token" {
			t.Errorf("a request has X-Team %q, X-Gate %q", h.Get("X-Team"), h.Get("X-Gate"))
			break
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, runfolder.RunFile))
	if err != nil {
		t.Fatal(err)
	}
	var info runfolder.Info
	if err := json.Unmarshal(b, &info); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "canary") || strings.Contains(string(b), "blue") {
		t.Errorf("run.json holds the value of a header: %s", info.Config["server"]["headers"])
	}
	if !strings.Contains(string(b), "${env:TOKEN}") {
		t.Errorf("run.json does not hold the reference of a header: %s", info.Config["server"]["headers"])
	}
}

func TestOwnAuthorityAndClientCertificate(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	server := httptest.NewUnstartedServer(w)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are expected
	server.StartTLS()
	t.Cleanup(server.Close)

	// The client uses the server's own key pair.
	pair := server.TLS.Certificates[0]
	dir := t.TempDir()
	ca, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")
	write := func(path, kind string, der []byte) {
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ca, "CERTIFICATE", pair.Certificate[0])
	write(key, "PRIVATE KEY", pkcs8(t, pair.PrivateKey))
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		code       int
		says       string
	}{
		{"both", "server: {ca_file: " + ca + ", client_cert: " + ca + ", client_key: " + key + "}", exit.OK, ""},
		{"no authority", "server: {client_cert: " + ca + ", client_key: " + key + "}", exit.Unusable, "certificate"},
		{"no client certificate", "server: {ca_file: " + ca + "}", exit.Unusable, "certificate"},
		{"key alone", "server: {client_key: " + key + "}", exit.Usage, "server.client_cert: needs server.client_key"},
		{"not PEM", "server: {ca_file: " + text + "}", exit.Usage, "server.ca_file: " + text + ": has no PEM certificate"},
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

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
