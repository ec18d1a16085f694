package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// An errorCase is a call that fails. said is the user message. It selects the behavior of the
// engine. want is a part of the error.
type errorCase struct {
	said, want string
	status     int // 0: an event after the head of the answer
	class      string
}

var errorCases = []errorCase{
	{"400", "maximum context length is 4096 tokens", 400, "BadRequestError"},
	{"401", "no", 401, "AuthenticationError"},
	{"404", "The model does not exist.", 404, "NotFoundError"},
	{"422", "the engine answered 422", 422, "UnprocessableEntityError"},
	{"429", "slow down", 429, "RateLimitError"},
	{"500", "Internal Server Error", 500, "InternalServerError"},
	{"503", "the engine answered 503", 503, "InternalServerError"},
	{"cut", "no engine answered: unexpected EOF", 502, "InternalServerError"},
	{"an unknown key", "the key does not open a session", 401, "AuthenticationError"},
	{"a sealed session", "the session is sealed", 410, "APIStatusError"},
	{"a bad request", "tool_choice", 400, "BadRequestError"},
	{"late", "Internal Server Error", 0, ""},
}

// A failingEngine is an sdkEngine that can cut answers off or send them late.
type failingEngine struct {
	sdkEngine
	headed chan struct{} // receives when the client has the head of a late answer
}

func (e failingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var said string
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var asked struct{ Messages []struct{ Content string } }
	if json.Unmarshal(body, &asked) == nil && len(asked.Messages) > 0 {
		said = asked.Messages[len(asked.Messages)-1].Content
	}
	switch said {
	case "cut":
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"choices":[`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "late":
		<-e.headed
		http.Error(w, sdkStatuses[500], http.StatusInternalServerError)
	default:
		e.sdkEngine.ServeHTTP(w, r)
	}
}

// A signaling writer sends a signal when the head of an answer has been sent.
type signaling struct {
	http.ResponseWriter
	headed chan struct{}
}

func (w signaling) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	w.headed <- struct{}{}
}

func (w signaling) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestSDKsTranslatedErrors checks that the SDKs retry, and raise the right exception with the message of
// the engine or of the tap.
func TestSDKsTranslatedErrors(t *testing.T) {
	t.Parallel()
	engine := failingEngine{headed: make(chan struct{}, 100)}
	clients := sdkClients(t)
	r := newSessionRig(t, proxy.Config{}, engine)
	key, sealed := string(r.begin(t)), r.begin(t)
	r.record(t, sealed)
	late := newSessionRig(t, proxy.Config{}, engine)
	late.proxy.Limits().HoldHead = time.Millisecond
	lateKey := string(late.begin(t))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		late.proxy.ServeHTTP(signaling{w, engine.headed}, r)
	}))
	t.Cleanup(front.Close)
	var calls []sdkCall
	var cases []errorCase
	for _, api := range []string{"responses", "messages"} {
		for _, stream := range []bool{false, true} {
			add := func(e errorCase) *sdkCall {
				calls = append(calls, sdkCall{Name: e.said, API: api, Body: map[string]any{"model": "policy", "stream": stream}})
				c := &calls[len(calls)-1]
				said := []any{map[string]any{"role": "user", "content": e.said}}
				if c.Body["input"] = said; api == "messages" {
					c.Body = map[string]any{"model": "policy", "stream": stream, "max_tokens": 10, "messages": said}
				}
				cases = append(cases, e)
				return c
			}
			for _, e := range errorCases {
				if e.status == 0 && !stream {
					continue
				}
				switch c := add(e); e.said {
				case "an unknown key":
					c.Base = r.url + "/r/" + lateKey + "/v1" // the URL of the other tap
				case "a sealed session":
					c.Base = r.url + "/r/" + string(sealed) + "/v1"
				case "a bad request":
					c.Body["tool_choice"] = map[string]any{"type": "what"}
				case "late":
					c.Base = front.URL + "/r/" + lateKey + "/v1"
				}
			}
			add(errorCase{said: "retry"}).Retries = 1
		}
	}
	file := callsFile(t, calls)
	for _, client := range clients {
		t.Run(client.name, func(t *testing.T) {
			lines := client.results(t, r.url+"/r/"+key+"/v1", "none", file)
			for i, c := range calls {
				checkError(t, client.name, c, cases[i], lines[i])
			}
			t.Logf("%d calls", len(calls))
		})
	}
}

func checkError(t *testing.T, client string, c sdkCall, want errorCase, line []byte) {
	t.Helper()
	var got struct {
		Objects []json.RawMessage
		Error   *struct {
			Class, Message string
			Status         int
			Body           json.RawMessage
			Wait           string `json:"retry_after"`
		}
	}
	what := fmt.Sprintf("%s, %s, stream %v", c.Name, c.API, c.Body["stream"])
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatalf("%s: %s: %v", what, line, err)
	}
	e := got.Error
	switch {
	case want.said == "retry":
		if e != nil || len(got.Objects) == 0 || !strings.Contains(string(line), `Hello, world.`) {
			t.Errorf("%s: %s", what, line)
		}
		return
	case want.status == 0 && c.API == "responses": // the SDK returns the event
		last := string(got.Objects[len(got.Objects)-1])
		if !strings.Contains(last, want.want) || !strings.Contains(last, `"response.failed"`) {
			t.Errorf("%s: %s", what, line)
		}
		return
	case e == nil:
		t.Errorf("%s: no error: %s", what, line)
		return
	}
	switch {
	case client == "JavaScript" && want.class == "APIStatusError":
		want.class = "APIError"
	case c.API == "messages" && want.status == http.StatusServiceUnavailable:
		want.class = "ServiceUnavailableError"
	case want.status == 0: // an event with an error
		want.class = e.Class
	}
	text := e.Message + string(e.Body)
	if e.Class != want.class || e.Status != want.status && want.status != 0 || !strings.Contains(text, want.want) {
		t.Errorf("%s: want %+v, got %s", what, want, line)
	}
	if want.said == "400" {
		overflow := map[string]string{"responses": `"code":"context_length_exceeded"`, "messages": `"message":"prompt is too long`}[c.API]
		if !strings.Contains(text, overflow) {
			t.Errorf("%s: want %s, got %s", what, overflow, line)
		}
	}
	if want.said == "429" && e.Wait != "7" {
		t.Errorf("%s: retry-after is %q", what, e.Wait)
	}
}
