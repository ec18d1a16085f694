package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// Secrets of the test, each from another source. They contain characters that encodings change, so
// that an encoded secret differs from the plain one.
var canaries = map[string]string{
	"password":           `canary-Pw/1+?"<x>&%=01`,
	"header by file":     `canary-Hf/2+?"<x>&%=02`,
	"header as it is":    `canary-Hl/3+?"<x>&%=03`,
	"variable of a tool": `canary-Tv/4+?"<x>&%=04`,
	"secret of an agent": `canary-As/5+?"<x>&%=05`,
	"environment":        `canary-En/6+?"<x>&%=06`,
	"proxy":              `canary-Px-7-0000000007`, // is part of an address
	"trace exporter":     `canary-Tx-8-0000000008`,
	"header of a reply":  `canary-Rh/9+?<x>&%=0009`,
	"address of a reply": `canary-Ra-10-000000010`,
}

func encodings(secret string) map[string]string {
	escaped, _ := json.Marshal(secret)
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(secret)
	inner := func(quoted string) string { return quoted[1 : len(quoted)-1] }
	forms := map[string]string{
		"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "markup": html.EscapeString(secret),
		"quoted": inner(strconv.QuoteToASCII(secret)), "JSON": inner(strings.TrimSpace(text.String())), "JSON for HTML": inner(string(escaped)),
	}
	// Base64 of a longer text that contains the secret. The text before it shifts it within the
	// groups of three bytes, and the characters at its ends also encode its neighbors.
	for shift := range 3 {
		for name, e := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64 for addresses": base64.URLEncoding} {
			all := e.EncodeToString(append(make([]byte, shift), secret...))
			whole := (shift + len(secret)) / 3 * 4
			forms[fmt.Sprintf("%s, shifted by %d", name, shift)] = all[(shift*8+5)/6 : whole]
		}
	}
	return forms
}

// written returns texts with a secret in the forms that servers and libraries write.
func written(t *testing.T, secret string) []string {
	t.Helper()
	texts := []string{
		secret, url.QueryEscape("a b" + secret), url.PathEscape(secret), fmt.Sprintf("%q", secret), strings.TrimSpace(asText(t, secret)), html.EscapeString(secret),
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for _, before := range []string{"", "u:", "Bearer "} {
			texts = append(texts, e.EncodeToString([]byte(before+secret)), e.EncodeToString([]byte(before+secret+"@behind")))
		}
	}
	return texts
}

func leaks(text []byte) []string {
	var found []string
	for where, secret := range canaries {
		for form, written := range encodings(secret) {
			if bytes.Contains(text, []byte(written)) {
				found = append(found, where+" ("+form+")")
			}
		}
	}
	slices.Sort(found)
	return found
}

// leakyServer is a simulated server behind a gateway that leaks secrets, in headers of every reply
// and in the errors of tasks with [leak:KIND].
type leakyServer struct {
	sim  http.Handler
	told map[string][]string // texts in errors, by secret
	mu   sync.Mutex
	seen map[string]int // how often each kind was played
}

// Each kind of leak, and whether a second attempt succeeds. Only one kind that looks like a server
// outage does not, because several would count as an outage.
var leakKinds = map[string]bool{
	"error": false, "validation": false, "page": false, "engine": false, "bad-header": false,
	"busy": true, "create": true, "failed": true, "bad-status": true, "bad-length": true, "bad-encoding": true,
}

func (l *leakyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := canaries["header of a reply"]
	for name, value := range map[string]string{
		"Set-Cookie": "session=" + reply, "X-Session-Token": reply, "Www-Authenticate": "Bearer " + reply, "X-Request-Id": reply, "Server": reply,
	} {
		w.Header().Set(name, value)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	create := r.Method == http.MethodPost && strings.Trim(r.URL.Path, "/") == "v1/agents"
	send := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages")
	if send && bytes.Contains(body, []byte("[leak:redirect]")) {
		l.leak(w, r, "redirect", body)
		return
	}
	for kind, spared := range leakKinds {
		marker := "[leak:" + kind + "]"
		if create {
			marker = `"leak-` + kind + `"` // the task id in the metadata
		}
		if create != (kind == "create") || !create && !send || !bytes.Contains(body, []byte(marker)) {
			continue
		}
		l.mu.Lock()
		l.seen[kind]++
		again := l.seen[kind] > 1
		l.mu.Unlock()
		if !spared || !again {
			l.leak(w, r, kind, body)
			return
		}
	}
	l.sim.ServeHTTP(w, r)
}

func (l *leakyServer) leak(w http.ResponseWriter, r *http.Request, kind string, body []byte) {
	// Every secret of the request, in every form.
	var told strings.Builder
	for _, name := range []string{"password", "header by file", "header as it is"} {
		for _, form := range l.told[name] {
			fmt.Fprintf(&told, "%s; ", form)
		}
	}
	for name, values := range r.Header {
		fmt.Fprintf(&told, "%s: %s; ", name, values)
	}
	fail := func(status int, text string) {
		b, _ := json.Marshal(map[string]string{"detail": text})
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(b)
	}
	reply := canaries["header of a reply"]
	switch kind {
	case "error":
		fail(http.StatusBadRequest, told.String())
	case "validation":
		fail(http.StatusUnprocessableEntity, "Input should be valid: "+string(body)+told.String())
	case "create", "failed":
		fail(http.StatusInternalServerError, "Input should be valid: "+string(body)+told.String())
	case "engine": // the secret at the place where a long text is cut
		fail(http.StatusBadRequest, strings.Repeat("x", 290)+canaries["password"])
	case "busy":
		w.Header().Set("Retry-After", "1")
		fail(http.StatusServiceUnavailable, told.String())
	case "page":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<html>log in: %s", told.String())
	case "redirect":
		w.Header().Set("Location", "https://user:"+canaries["address of a reply"]+"@login.invalid/in?token="+canaries["address of a reply"]+"#"+canaries["address of a reply"])
		w.WriteHeader(http.StatusFound)
	case "bad-header":
		raw(w, "HTTP/1.1 200 OK\r\nX-Session-Token "+reply+"\r\n\r\n")
	case "bad-status":
		raw(w, reply+"\r\n\r\n")
	case "bad-length":
		raw(w, "HTTP/1.1 200 OK\r\nContent-Length: "+reply+"\r\n\r\n")
	case "bad-encoding":
		raw(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: "+reply+"\r\n\r\n")
	}
}

// raw answers with bytes that need not be HTTP.
func raw(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// The search finds a secret in each of its forms.
func TestLeaks(t *testing.T) {
	t.Parallel()
	for where, secret := range canaries {
		for _, text := range written(t, secret) {
			if !slices.ContainsFunc(leaks([]byte("before "+text+" behind")), func(s string) bool { return strings.HasPrefix(s, where) }) {
				t.Errorf("%s is not found in %q", where, text)
			}
		}
	}
	if found := leaks([]byte("a text without any canary-Pw/1")); found != nil {
		t.Errorf("found %v where nothing is", found)
	}
}

// A run with secrets from every source leaks none in its files and output, through failures,
// retries, a crash and a resume.
func TestCanary(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Password: canaries["password"], Latency: latencyOf(t, "50ms..300ms"), Faults: recoverableFaults(0.05)})
	leaky := &leakyServer{sim: sim, told: map[string][]string{}, seen: map[string]int{}}
	for where, secret := range canaries {
		leaky.told[where] = written(t, secret)
	}
	url := serveHandler(t, sim, leaky)

	var tasks bytes.Buffer
	for kind := range leakKinds {
		fmt.Fprintf(&tasks, `{"id":"leak-%s","prompt":"Add 2 and 3. [leak:%s]","answer":"5","samples":1}`+"\n", kind, kind)
	}
	tasks.Write(sim.Tasks(lettasim.TaskOptions{Scripted: 40}))
	// A redirect ends a run, so it has its own run.
	redirect := writeFile(t, "tasks.jsonl", []byte(`{"id":"leak-redirect","prompt":"[leak:redirect]","answer":"5"}`+"\n"))
	config := fmt.Sprintf(`
server:
  urls: [%s]
  password: ${env:CANARY_PASSWORD}
  headers: {X-Gateway-Key: "${file:%s}", X-Other-Key: %s}
agent:
  model: %s
  create: {tool_exec_environment_variables: {API_KEY: %s}, secrets: {TOKEN: %s}}
run: {fail_on_error: 50%%, retries: 1, metrics_addr: "127.0.0.1:0", metrics_pprof: true}
output: {shard_age: 1s, messages: true}
reward: {kind: number}
tasks: {samples: 2}
`, url, writeFile(t, "header", []byte(canaries["header by file"]+"\n")), asText(t, canaries["header as it is"]), simModel,
		asText(t, canaries["variable of a tool"]), asText(t, canaries["secret of an agent"]))
	config = strings.ReplaceAll(config, "\n}", "}")
	config = strings.ReplaceAll(config, "\n,", ",")
	env := []string{
		"CANARY_PASSWORD=" + canaries["password"], "UNRELATED_TOKEN=" + canaries["environment"],
		"HTTP_PROXY=http://user:" + canaries["proxy"] + "@127.0.0.1:1", "HTTPS_PROXY=http://user:" + canaries["proxy"] + "@127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://user:" + canaries["trace exporter"] + "@127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20" + canaries["trace exporter"],
	}
	dir := filepath.Join(t.TempDir(), "run")
	base := []string{"-c", writeFile(t, "run.yaml", []byte(config)), "--tasks", writeFile(t, "tasks.jsonl", tasks.Bytes()), "--out", dir}
	run := func(command ...string) *process { return startProgram(t, "rollout", env, command...) }
	said := map[string]string{} // by source
	var mu sync.Mutex
	say := func(what, text string) {
		mu.Lock()
		defer mu.Unlock()
		said[what] += text
	}
	finish := func(p *process) int {
		code := p.wait(t, time.Minute)
		say(fmt.Sprint(p.cmd.Args[1:]), p.said())
		return code
	}

	// One process is killed while its metrics are scraped, and one ends.
	crashed := run(append([]string{"collect", "--json"}, base...)...)
	scrapes := scrapeAll(t, crashed, say)
	waitFor(t, "a commit, and samples in flight", func() bool {
		return commitsOf(dir) >= 1 && sim.Stats().InFlight > 0 || !crashed.alive()
	})
	crashed.kill()
	<-scrapes
	say("the crashed run", crashed.said())
	checkNoLeaks(t, "after the crash", dir, said)
	if crashed.code != -1 {
		t.Fatalf("the run ended by itself: %d\n%s", crashed.code, crashed.said())
	}
	resumed := run(append([]string{"collect", "--resume"}, base...)...)
	scrapes = scrapeAll(t, resumed, say)
	if code := finish(resumed); code != exit.Failures {
		t.Errorf("resumed: exit code %d, want %d\n%s", code, exit.Failures, resumed.said())
	}
	<-scrapes
	elsewhere := append(slices.Clone(base[:2]), "--tasks", redirect, "--out", filepath.Join(t.TempDir(), "redirected"))
	for _, command := range [][]string{
		append([]string{"collect"}, elsewhere...), // refused by the trial call
		append([]string{"collect", "--preflight", "connect"}, elsewhere...),
		{"verify", dir},
		{"inspect", dir, "--json"},
		{"inspect", dir, "--failures"},
		{"inspect", dir, "--failures", "--json"},
		{"failures", dir},
		{"failures", dir, "--json"},
		{"report", dir},
		append([]string{"collect", "--resume", "--retry-failed"}, base...),
		append([]string{"config", "show"}, base...), append([]string{"collect", "--dry-run", "--out", dir + "2"}, base[:4]...),
		append([]string{"doctor"}, base[:4]...), append([]string{"collect"}, base...),
	} {
		p := run(command...)
		if code := finish(p); code == exit.Internal || code == exit.Usage {
			t.Errorf("%v: exit code %d\n%s", command, code, p.said())
		}
	}
	headers := must(json.Marshal(map[string]string{"X-Gateway-Key": canaries["header by file"], "X-Other-Key": canaries["header as it is"]}))(t)
	if code := finish(startProgram(t, "rollout", append(env, "ROLLOUT_SERVER_HEADERS="+string(headers)), "clean", dir)); code != exit.OK {
		t.Errorf("clean: exit code %d", code)
	}
	// A run does not keep secrets that were not given by reference, and reports that.
	forgetful := run("collect", "--resume", "--out", dir)
	if code := finish(forgetful); code != exit.Usage || !strings.Contains(forgetful.said(), "server.headers") || !strings.Contains(forgetful.said(), "agent.create") {
		t.Errorf("resumed from %s alone: exit code %d\n%s", runfolder.RunFile, code, forgetful.said())
	}
	checkNoLeaks(t, "at the end", dir, said)

	got := readDataset(t, dir)
	for kind, spared := range leakKinds {
		if leaky.seen[kind] == 0 {
			t.Errorf("no leak of kind %s: the test has lost its teeth", kind)
		}
		id := sampleID{"leak-" + kind, 0}
		if failed := len(got.failures[id]) > 0; failed == spared {
			t.Errorf("%v: failed is %v", id, failed)
		}
		for _, f := range got.failures[id] {
			t.Logf("%s: %s: %s", kind, f.Class, f.Error)
		}
	}
	if text := said["metrics"]; !strings.Contains(text, "rollout_samples_total") {
		t.Errorf("nothing was scraped: %s", text)
	}
}

func scrapeAll(t *testing.T, p *process, say func(what, text string)) (done <-chan struct{}) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}}
		for ; p.alive(); time.Sleep(50 * time.Millisecond) {
			_, rest, ok := strings.Cut(p.said(), "metrics at http://")
			addr, _, whole := strings.Cut(rest, "/metrics")
			if !ok || !whole {
				continue // not yet
			}
			for _, path := range []string{"metrics", "healthz", "readyz", "debug/pprof/cmdline", "debug/pprof/goroutine?debug=2"} {
				resp, err := client.Get("http://" + addr + "/" + path)
				if err != nil {
					break // it ended
				}
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				say(path, string(b)+"\n")
			}
		}
	}()
	return ended
}

// checkNoLeaks searches every file of a folder, including compressed content, and all output.
func checkNoLeaks(t *testing.T, when, dir string, said map[string]string) {
	t.Helper()
	files := treeOf(t, dir)
	if len(files) < 4 {
		t.Errorf("%s: %d files", when, len(files))
	}
	for _, texts := range []map[string]string{files, said} {
		for what, text := range texts {
			for _, found := range leaks([]byte(text)) {
				t.Errorf("%s: %s holds the %s", when, what, found)
			}
		}
	}
	d := readDataset(t, dir)
	for id, r := range d.allRows() {
		if found := leaks([]byte(asText(t, r))); found != nil {
			t.Errorf("%s: a row of %v holds %v", when, id, found)
		}
	}
	for id, stored := range d.allFailures() {
		f := *stored
		f.Logprobs = nil // JSON has no NaN
		if found := leaks([]byte(asText(t, f))); found != nil {
			t.Errorf("%s: a failure of %v holds %v: %s", when, id, found, f.Error)
		}
	}
}
