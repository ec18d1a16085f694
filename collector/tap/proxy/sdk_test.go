package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// An sdkClient is a program that makes calls with an official OpenAI SDK. Its arguments are a base
// URL, a key and a file of calls.
type sdkClient struct {
	name    string
	command []string
}

// sdkClients returns the clients, or skips the test if their SDKs are not installed.
func sdkClients(tb testing.TB) []sdkClient {
	tb.Helper()
	home := os.Getenv("ROLLOUT_HARNESS")
	if home == "" {
		tb.Skip("the OpenAI SDKs are not installed: make e2e-harness installs them and runs this test, also with SHORT=1, as in .ci/run")
	}
	clients := []sdkClient{
		{"Python", []string{filepath.Join(home, "mini-swe-agent/bin/python"), "testdata/sdk/client.py"}},
		{"JavaScript", []string{filepath.Join(home, "bin/node"), "testdata/sdk/client.mjs", filepath.Join(home, "openai/node_modules/openai")}},
	}
	for _, c := range clients {
		if _, err := os.Stat(c.command[0]); err != nil {
			tb.Fatalf("the OpenAI SDK for %s is not installed: run make harnesses (%v)", c.name, err)
		}
	}
	return clients
}

// sdkCalls writes the file of calls, and returns its name and the number of calls.
func sdkCalls(tb testing.TB) (file string, n int) {
	tb.Helper()
	type call struct {
		Name    string         `json:"name"`
		Body    map[string]any `json:"body"`
		Helper  bool           `json:"helper"`
		Retries int            `json:"retries"`
	}
	var calls []call
	tools := []any{map[string]any{"type": "function", "function": map[string]any{
		"name": "bash", "strict": true, "parameters": map[string]any{
			"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}, "required": []string{"command"}, "additionalProperties": false,
		},
	}}}
	add := func(name, content, how string, change func(*call)) {
		c := call{Name: name + ", " + how, Body: map[string]any{
			"model": "policy", "tools": tools,
			"messages": []any{map[string]any{"role": "system", "content": "Sei höflich."}, map[string]any{"role": "user", "content": content}},
		}}
		change(&c)
		calls = append(calls, c)
	}
	whole := func(*call) {}
	stream := func(c *call) { c.Body["stream"] = true }
	for _, name := range sdkScripts {
		content := "Do it. [script:" + name + "]"
		add(name, content, "whole", whole)
		add(name, content, "stream", stream)
		add(name, content, "whole, no tools but sampling", func(c *call) {
			delete(c.Body, "tools")
			c.Body["stop"], c.Body["temperature"], c.Body["max_tokens"] = []string{"\n\n", "日"}, 0.5, 50
		})
		add(name, content, "stream, usage", func(c *call) {
			stream(c)
			c.Body["stream_options"] = map[string]any{"include_usage": true}
		})
		add(name, content, "whole, log-probabilities", func(c *call) { c.Body["logprobs"], c.Body["top_logprobs"] = true, 0 })
		add(name, content, "stream, log-probabilities", func(c *call) { stream(c); c.Body["logprobs"] = true })
		add(name, content, "helper", func(c *call) { stream(c); c.Helper = true })
	}
	faults := []string{"cut=1", "cut=1 after=9 think", "cut=1 after=20 parallel", "err=1", "busy=1", "ctx=1"}
	for i, fault := range faults {
		add(fault, enginesim.Marker(2*i, strings.Fields(fault)...), "stream", stream)
		if !strings.HasPrefix(fault, "cut") { // the SDKs name the cause, which is another one behind a proxy
			add(fault, enginesim.Marker(2*i+1, strings.Fields(fault)...), "whole", whole)
		}
	}
	add("retry", enginesim.Marker(100, "err=1"), "whole", func(c *call) { c.Retries = 1 })
	add("retry", enginesim.Marker(101, "err=1"), "stream", func(c *call) { stream(c); c.Retries = 1 })
	for status := range sdkStatuses {
		add(strconv.Itoa(status), strconv.Itoa(status), "whole", whole)
		add(strconv.Itoa(status), strconv.Itoa(status), "stream", stream)
	}
	slices.SortFunc(calls, func(a, b call) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	text, err := json.Marshal(calls)
	if err != nil {
		tb.Fatal(err)
	}
	file = filepath.Join(tb.TempDir(), "calls.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file, len(calls)
}

// results runs a client and returns the lines that it prints.
func (c sdkClient) results(tb testing.TB, base, key, calls string) [][]byte {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), c.command[0], append(c.command[1:len(c.command):len(c.command)], base, key, calls)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + tb.TempDir(), "LANG=C.UTF-8"}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v", c.name, err)
	}
	return bytes.Split(bytes.TrimSpace(out), []byte("\n"))
}

// sdkScripts are the scripts of the engine that the clients call.
var sdkScripts = []string{
	"single", "newlines", "think", "tool", "think-parallel", "text-around", "unicode", "escaped", "quoted", "spaced", "numbers", "bash-two",
	"length", "length-tool", "empty", "malformed", "chars",
}

// sdkStatuses are error answers of other servers, by their status. A request gets one if its last message
// is the status.
var sdkStatuses = map[int]string{
	401: `{"error":{"message":"no","type":"auth","param":null,"code":"invalid"}}`,
	404: `{"object":"error","message":"The model does not exist.","type":"NotFoundError","code":404}`,
	422: `{"detail":[{"loc":["body"],"msg":"größer"}]}`,
	429: `{"error":{"message":"slow down"}}`,
	500: `Internal Server Error`,
	503: ``,
}

// sdkEngine returns a scripted engine that also gives the answers in sdkStatuses. It sends its answers in
// pieces that end anywhere, even inside of a character.
func sdkEngine(tb testing.TB, d enginesim.Dialect) http.Handler {
	tb.Helper()
	e, err := enginesim.New(enginesim.Config{Model: "policy", MaxModelLen: 4096, Dialect: d, Reasoning: true})
	if err != nil {
		tb.Fatal(err)
	}
	pieces := chopped(e, rand.New(rand.NewPCG(1, uint64(d))))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var asked struct{ Messages []struct{ Content string } }
		if json.Unmarshal(body, &asked) == nil && len(asked.Messages) > 0 {
			status, _ := strconv.Atoi(asked.Messages[len(asked.Messages)-1].Content)
			if text, ok := sdkStatuses[status]; ok {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
				return
			}
		}
		pieces.ServeHTTP(w, r)
	})
}

// sameForSDKs proves that a client receives the same at both base URLs. part returns what is compared of
// a line, or nil.
func sameForSDKs(t *testing.T, c sdkClient, direct, tapped, key string, part func(line []byte) []byte) {
	t.Helper()
	calls, n := sdkCalls(t)
	want, got := c.results(t, direct, "none", calls), c.results(t, tapped, key, calls)
	if len(want) != n+1 || len(got) != len(want) {
		t.Fatalf("%d results without the tap and %d with it, want %d", len(want), len(got), n+1)
	}
	failed, compared := 0, 0
	for i := range want {
		of := part(constant(want[i]))
		if of == nil {
			continue
		}
		if compared++; bytes.Equal(part(constant(got[i])), of) {
			continue
		}
		if failed++; failed <= 5 {
			t.Errorf("without the tap\n%s\nand with it\n%s", shortened(want[i]), shortened(got[i]))
		}
	}
	t.Logf("%d results, %d differ", compared, failed)
}

// changing matches what differs between two engines that answer the same request: times, and the numbers
// of calls in ids. It also matches the ids that vLLM sends as null to clients that did not ask for them,
// which the tap removes.
var changing = regexp.MustCompile(`("created":\d)\d+|("chatcmpl-[0-9a-f]{16})[0-9a-f]+|("call_[0-9a-f]{8})[0-9a-f]{6}|,?"(?:prompt_)?token_ids":null`)

func constant(line []byte) []byte { return changing.ReplaceAll(line, []byte("$1$2$3")) }

func wholeLine(line []byte) []byte { return line }

// exceptChunks returns what a client sees of a call, apart from how a stream was divided, or nil if
// that is all.
func exceptChunks(line []byte) []byte {
	var call struct {
		Name    string
		Objects []json.RawMessage
		Error   json.RawMessage
	}
	if json.Unmarshal(line, &call) != nil {
		return line
	}
	if strings.HasSuffix(call.Name, ", helper") && bytes.Contains(line, []byte("reasoning_content")) {
		return nil // the SDK for JavaScript keeps only the last piece of a member that it does not know
	}
	if strings.HasSuffix(call.Name, ", helper") && len(call.Objects) > 0 { // the names of events come first
		last := call.Objects[len(call.Objects)-1]
		if last[0] == '"' {
			last = nil
		}
		return fmt.Appendf(nil, "%s %s %s", call.Name, last, call.Error)
	}
	if strings.Contains(call.Name, ", stream") && (string(call.Error) == "null" || strings.HasPrefix(call.Name, "cut=")) {
		return nil
	}
	return line
}

func shortened(line []byte) string {
	if len(line) <= 1500 {
		return string(line)
	}
	return fmt.Sprintf("%s… (%d bytes)", line[:1500], len(line))
}

// TestSDKsSeeTheSame proves that clients with the official OpenAI SDKs receive the same objects and
// errors through the tap as directly from the engine.
func TestSDKsSeeTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range sdkClients(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			direct := httptest.NewServer(sdkEngine(t, enginesim.DialectVLLM))
			t.Cleanup(direct.Close)
			tapped := newRig(t, proxy.Config{}, sdkEngine(t, enginesim.DialectVLLM)).url + "/v1"
			sameForSDKs(t, c, direct.URL+"/v1", tapped, "none", wholeLine)
		})
	}
}

// TestSDKsSeeTheSameInSessions proves the same for the calls of a session, in which the tap asks for
// token ids. If the engine has no ids for streams, the tap divides a whole answer, so the chunks are
// not compared.
func TestSDKsSeeTheSameInSessions(t *testing.T) {
	t.Parallel()
	clients := sdkClients(t)
	for _, f := range forms {
		part := wholeLine
		if f.mode == "whole answers" {
			part = exceptChunks
		}
		for _, c := range clients {
			t.Run(f.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				direct := httptest.NewServer(sdkEngine(t, f.dialect))
				t.Cleanup(direct.Close)
				r := newSessionRig(t, proxy.Config{}, sdkEngine(t, f.dialect))
				if err := r.proxy.Probe(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := r.proxy.Mode(); got != f.mode {
					t.Fatalf("the tap gets ids by %q, want %q", got, f.mode)
				}
				key := r.begin(t)
				sameForSDKs(t, c, direct.URL+"/v1", r.url+"/r/"+string(key)+"/v1", string(key), part)
				read := 0
				for _, c := range r.record(t, key).Calls {
					if c.Unread == "" && len(c.Output) > 0 && c.Delivered {
						read++
					}
				}
				if want := 7 * len(sdkScripts); read < want {
					t.Errorf("%d calls have ids, want at least %d", read, want)
				}
			})
		}
	}
}
