package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// An sdkClient is a program that makes calls with the official SDKs. Its arguments are a base URL, a
// key and a file of calls.
type sdkClient struct {
	name    string
	command []string
}

// sdkClients returns the clients, or skips the test if their SDKs are not installed.
func sdkClients(tb testing.TB) []sdkClient {
	tb.Helper()
	home := os.Getenv("ROLLOUT_HARNESS")
	if home == "" {
		tb.Skip("the SDKs are not installed: make e2e-harness installs them and runs this test, also with SHORT=1, as in .ci/run")
	}
	clients := []sdkClient{
		{"Python", []string{filepath.Join(home, "mini-swe-agent/bin/python"), "testdata/sdk/client.py"}},
		{"JavaScript", []string{filepath.Join(home, "bin/node"), "testdata/sdk/client.mjs", home}},
	}
	for i, needed := range []string{clients[0].command[0], filepath.Join(home, "anthropic/node_modules")} {
		if _, err := os.Stat(needed); err != nil {
			tb.Fatalf("the SDKs for %s are not installed: run make harnesses (%v)", clients[i].name, err)
		}
	}
	return clients
}

// An sdkCall is a call that the clients make (see testdata/sdk/client.py).
type sdkCall struct {
	Name    string         `json:"name"`
	API     string         `json:"api,omitempty"`
	Base    string         `json:"base,omitempty"`
	Key     string         `json:"key,omitempty"`
	Body    map[string]any `json:"body"`
	Turns   [][]any        `json:"turns,omitempty"`
	Result  string         `json:"result"`
	Helper  bool           `json:"helper"`
	Retries int            `json:"retries"`
}

// sdkCalls returns the calls for every answer and status of the engine.
func sdkCalls() []sdkCall {
	var calls []sdkCall
	add := func(answer, how string, change func(*sdkCall)) {
		c := sdkCall{Name: answer + ", " + how, Body: map[string]any{
			"model":    "policy",
			"messages": []any{map[string]any{"role": "system", "content": "Sei höflich."}, map[string]any{"role": "user", "content": answer}},
		}}
		change(&c)
		calls = append(calls, c)
	}
	whole := func(*sdkCall) {}
	stream := func(c *sdkCall) { c.Body["stream"] = true }
	tools := []any{map[string]any{"type": "function", "function": map[string]any{
		"name": "weather", "parameters": map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
	}}}
	for _, a := range sdkAnswers {
		add(a.name, "whole", whole)
		add(a.name, "stream", stream)
		add(a.name, "whole, tools and sampling", func(c *sdkCall) {
			c.Body["tools"], c.Body["parallel_tool_calls"], c.Body["stop"], c.Body["temperature"] = tools, true, []string{"\n\n", "日"}, 0.5
		})
		add(a.name, "stream, usage", func(c *sdkCall) {
			stream(c)
			c.Body["stream_options"] = map[string]any{"include_usage": true}
		})
		add(a.name, "whole, log-probabilities", func(c *sdkCall) { c.Body["logprobs"], c.Body["top_logprobs"] = true, 0 })
		add(a.name, "stream, log-probabilities", func(c *sdkCall) { stream(c); c.Body["logprobs"] = true })
		add(a.name, "helper", func(c *sdkCall) { stream(c); c.Helper = true })
		add("cut "+a.name, "stream", stream)
	}
	for status := range sdkStatuses {
		add(strconv.Itoa(status), "whole", whole)
		add(strconv.Itoa(status), "stream", stream)
	}
	add("retry", "whole", func(c *sdkCall) { c.Retries = 1 })
	add("retry", "stream", func(c *sdkCall) { stream(c); c.Retries = 1 })
	slices.SortFunc(calls, func(a, b sdkCall) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return calls
}

// callsFile writes calls to a file for a client.
func callsFile(tb testing.TB, calls []sdkCall) string {
	tb.Helper()
	text, err := json.Marshal(calls)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "calls.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
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

// sameForSDKs proves that the clients receive the same at both base URLs. part returns what is compared
// of a line, or nil.
func sameForSDKs(t *testing.T, calls []sdkCall, direct, tapped, key string, part func(line []byte) []byte) {
	t.Helper()
	file := callsFile(t, calls)
	for _, c := range sdkClients(t) {
		want, got := c.results(t, direct, "none", file), c.results(t, tapped, key, file)
		if len(want) != len(calls)+1 || len(got) != len(want) {
			t.Fatalf("%s: %d results without the tap and %d with it, want %d", c.name, len(want), len(got), len(calls)+1)
		}
		failed, compared := 0, 0
		for i := range want {
			of := part(want[i])
			if of == nil {
				continue
			}
			if compared++; bytes.Equal(part(got[i]), of) {
				continue
			}
			if failed++; failed <= 5 {
				t.Errorf("%s: without the tap\n%s\nand with it\n%s", c.name, shortened(want[i]), shortened(got[i]))
			}
		}
		t.Logf("%s: %d results, %d differ", c.name, compared, failed)
	}
}

func wholeLine(line []byte) []byte { return line }

// exceptChunks returns what a client sees of a call, apart from how a stream was divided. It returns nil
// for a stream that was cut off.
func exceptChunks(line []byte) []byte {
	var call struct {
		Name    string
		Objects []json.RawMessage
		Error   json.RawMessage
	}
	if json.Unmarshal(line, &call) != nil {
		return line
	}
	if call.Name == "reasoning, helper" { // the SDK for JavaScript keeps only the last piece of a member that it does not know
		return nil
	}
	if strings.HasSuffix(call.Name, ", helper") && len(call.Objects) > 0 { // the names of events come first
		return fmt.Appendf(nil, "%s %s %s", call.Name, call.Objects[len(call.Objects)-1], call.Error)
	}
	switch stream := strings.Contains(call.Name, ", stream"); {
	case stream && strings.HasPrefix(call.Name, "cut "):
		return nil
	case stream && string(call.Error) == "null":
		return fmt.Appendf(nil, "%s %s", call.Name, sumOf(call.Objects))
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
	sdkClients(t)
	direct := httptest.NewServer(sdkEngine{})
	t.Cleanup(direct.Close)
	sameForSDKs(t, sdkCalls(), direct.URL+"/v1", newRig(t, proxy.Config{}, sdkEngine{}).url+"/v1", "none", wholeLine)
}

// TestSDKsSeeTheSameInSessions proves the same for the calls of a session, in which the tap asks for
// token ids.
func TestSDKsSeeTheSameInSessions(t *testing.T) {
	t.Parallel()
	sameInSessions(t, nil, sdkCalls())
}

// sameInSessions proves that the clients receive the same in a session, for each way in which an engine
// returns ids. If the engine has no ids for streams, the tap divides a whole answer, so not the chunks
// are compared, but their sum. more contains further answers of the engine.
func sameInSessions(t *testing.T, more []sdkAnswer, calls []sdkCall) {
	t.Helper()
	sdkClients(t)
	base := sdkEngine{more}
	for _, e := range []struct {
		mode   string
		engine http.Handler
		part   func([]byte) []byte
	}{
		{"body", base, wholeLine},
		{"headers", sdkSGLang{base, true}, wholeLine},
		{"whole answers", sdkSGLang{base, false}, exceptChunks},
	} {
		t.Run(e.mode, func(t *testing.T) {
			t.Parallel()
			direct := httptest.NewServer(e.engine)
			t.Cleanup(direct.Close)
			r := newSessionRig(t, proxy.Config{}, e.engine)
			if err := r.proxy.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := r.proxy.Mode(); got != e.mode {
				t.Fatalf("the tap gets ids by %q, want %q", got, e.mode)
			}
			key := r.begin(t)
			sameForSDKs(t, calls, direct.URL+"/v1", r.url+"/r/"+string(key)+"/v1", string(key), e.part)
			whole, read := 0, 0
			for _, c := range r.record(t, key).Calls {
				if c.Status != http.StatusOK || c.Cut {
					continue
				}
				whole++
				if c.Unread == "" && len(c.Output) > 0 {
					read++
				}
			}
			t.Logf("%d whole answers, %d with ids", whole, read)
			if read == 0 || read < whole {
				t.Errorf("%d of %d whole answers have ids", read, whole)
			}
		})
	}
}
