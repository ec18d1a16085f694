package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/session"
)

// Hostile agents run beside an ordinary one: an agent that floods its session, one that forks
// processes all the time, one that leaves a process without a parent and an environment, one that
// prints its secrets everywhere, and one that never ends. Each gets its own result, the ordinary one
// its rows. No process, folder or session is left, and no secret is stored or printed.
func TestHostileHarness(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("kills processes that have left their group: this works on Linux only")
	}
	var prompts []string
	for i, words := range []string{"", " flood=300", " fork=60", " survive", " secret", " secret hang", " flood=100 fork=20 survive secret"} {
		prompts = append(prompts, fmt.Sprintf("Task %d. %s%s", i+1, enginesim.Marker(i+1, "calls=1"), words))
	}
	h := newHarnessRun(t, prompts, len(prompts), "")
	settings := string(must(os.ReadFile(h.config))(t))
	noError(t, os.WriteFile(h.config, []byte(strings.NewReplacer("timeout: 60s", "timeout: 8s", "env: {", `env: {HARNESS_API_KEY: "${env:HARNESS_SECRET}", `, "fail_on_error: 100%", "fail_on_error: 100%, retries: 0").Replace(settings)), 0o600))
	const secret, given = "hunter2-of-the-collector", "hunter2-of-the-harness"
	p := startProgram(t, "rollout", []string{"TMPDIR=" + h.temp, "MY_SECRET=" + secret, "OPENAI_API_KEY=" + secret, "HARNESS_SECRET=" + given},
		"collect", "-c", h.config, "--json")
	p.ends(t, 2*time.Minute, exit.Failures)
	time.Sleep(100 * time.Millisecond) // five hops of a process that forks all the time
	h.nothingLeft(t)
	for _, survivor := range must(filepath.Glob(filepath.Join(h.keys, "survivor*")))(t) {
		pid := must(strconv.Atoi(strings.TrimSpace(string(must(os.ReadFile(survivor))(t)))))(t)
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d is alive", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	got := verified(t, h.dir)
	got.once(t)
	for i, prompt := range prompts {
		id := sampleID{fmt.Sprintf("t%d", i+1), 0}
		if strings.Contains(prompt, "hang") {
			if f := got.failures[id]; len(f) == 0 || f[0].Class != "timeout_total" || got.rows[id] != nil {
				t.Errorf("%s: failures %+v", prompt, f)
			}
		} else if len(got.rows[id]) == 0 {
			t.Errorf("%s: no rows\n%s", prompt, p.said())
		}
	}
	checkTrained(t, got, h.engine.Calls())

	all := textIn(t, h.dir) + p.said() + mustRun(t, exit.OK, "inspect", "--json", h.dir).stdout + mustRun(t, exit.OK, "failures", h.dir).stdout + mustRun(t, exit.OK, "report", h.dir, "--json").stdout
	keys := must(filepath.Glob(filepath.Join(h.keys, "key-*")))(t)
	if len(keys) != len(prompts) {
		t.Errorf("%d keys, want %d", len(keys), len(prompts))
	}
	for _, name := range keys {
		key := string(must(os.ReadFile(name))(t))
		if at := strings.Index(all, key); at >= 0 || key == "" {
			t.Errorf("a key is in %.200s", all[max(0, at-100):])
		}
	}
	for _, secret := range []string{secret, given} {
		if at := strings.Index(all, secret); at >= 0 {
			t.Errorf("the secret %s is in %.200s", secret, all[max(0, at-100):])
		}
	}
	contains(t, all, "secret (session key) (secret)") // otherwise the agents printed nothing
}

// A client that guesses the key of a session always gets the same answer, whether the guess is close
// to a key, the key of a session that is gone, or not a key at all. As an API key, a guess gets another
// answer if it begins like a key. The answers of a tap with a token do not show which pages exist. The
// log and the pages of the tap contain no key.
func TestGuessedKey(t *testing.T) {
	t.Parallel()
	_, _, url := newHarnessEngine(t, enginesim.DialectVLLM)
	const token = "a-token-with-32-characters-in-it"
	tap := newSessionTap(t, "rollout", url, "--verbose", "--token-file", writeFile(t, "token", []byte(token+"\n")))
	ask := func(method, path, auth, body string) (int, string) {
		t.Helper()
		req := must(http.NewRequestWithContext(t.Context(), method, tap.url()+path, strings.NewReader(body)))(t)
		if auth != "" {
			req.Header.Set("Authorization", "Bearer "+auth)
		}
		resp := must(http.DefaultClient.Do(req))(t)
		defer resp.Body.Close()
		resp.Header.Del("Date")
		var text bytes.Buffer
		_ = resp.Header.Write(&text)
		_, err := text.ReadFrom(resp.Body)
		noError(t, err)
		return resp.StatusCode, text.String()
	}
	status, begun := ask(http.MethodPost, "/r", token, "{}")
	key := session.KeyPattern.FindString(begun)
	if status != http.StatusCreated || key == "" {
		t.Fatalf("%d %s", status, begun)
	}
	const call = `{"model":"policy","messages":[{"role":"user","content":"Hi."}]}`
	if status, text := ask(http.MethodPost, "/r/"+key+"/v1/chat/completions", "", call); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	last := key[len(key)-1]
	guesses := []string{
		key[:len(key)-1] + string(rune('A'+(last+1)%26)), string(session.NewKey()), key[:len(key)-1], key + "0", strings.ToLower(key), strings.ToUpper(key), "x", strings.Repeat("0", len(key)),
		token, "..", "%2e%2e", strings.Repeat("A", 4000),
	}
	guesses = slices.DeleteFunc(guesses, func(g string) bool { return g == key })
	shapes := map[string]map[string]string{"path": {}, "key": {}, "token": {}} // of keys in the path, and of API keys
	for _, guess := range guesses {
		for _, r := range []struct{ method, path, auth, body string }{
			{http.MethodPost, "/r/" + guess + "/v1/chat/completions", "", call},
			{http.MethodPost, "/r/" + guess + "/end", "", "{}"},
			{http.MethodGet, "/r/" + guess + "/v1/models", "", ""},
			{http.MethodPost, "/v1/chat/completions", guess, call},
		} {
			if guess == token && r.auth != "" || strings.Contains(guess, "..") && r.auth == "" {
				continue // the token is allowed there; a path with dots is cleaned by the client or the server
			}
			status, text := ask(r.method, r.path, r.auth, r.body)
			if status != http.StatusUnauthorized {
				t.Errorf("%s %.60s with %.20q: status %d %s", r.method, r.path, r.auth, status, text)
			}
			kind := "path"
			if r.auth != "" {
				kind = map[bool]string{false: "token", true: "key"}[strings.HasPrefix(guess, session.KeyPrefix)]
			}
			shapes[kind][text] = guess
		}
	}
	if len(shapes["path"]) != 1 || len(shapes["key"]) != 1 || len(shapes["token"]) != 1 {
		t.Errorf("the answers differ: %v", shapes)
	}
	for _, path := range []string{"/", "/tap/metrics", "/tap/sessions", "/tap/segments", "/metrics", "/v1/models", "/flush_cache", "/nothing"} {
		if status, text := ask(http.MethodGet, path, "", ""); status != http.StatusUnauthorized {
			t.Errorf("GET %s without the token: %d %s", path, status, text)
		}
		if status, text := ask(http.MethodGet, path, key, ""); status != http.StatusNotFound && path != "/v1/models" {
			t.Errorf("GET %s with a key of a session: %d %s", path, status, text)
		}
	}
	if status, text := ask(http.MethodPost, "/r", key, "{}"); status != http.StatusNotFound {
		t.Errorf("a key begins a session: %d %s", status, text)
	}
	status, metrics := ask(http.MethodGet, "/tap/metrics", token, "")
	if status != http.StatusOK {
		t.Errorf("%d %s", status, metrics)
	}
	var files strings.Builder
	noError(t, filepath.WalkDir(tap.spool, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path)
			files.Write(append([]byte(path), b...))
		}
		return err
	}))
	for where, text := range map[string]string{"log": tap.p.said(), "metrics": metrics, "files": files.String()} {
		if strings.Contains(text, key) || strings.Contains(text, token) {
			t.Errorf("the %s contain a secret:\n%s", where, text)
		}
	}
}
