package lettasim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const recordings = "../../../testdata/letta"

type sim struct {
	*lettasim.Server
	t      testing.TB
	url    string
	client *http.Client
	header http.Header
}

func start(tb testing.TB, cfg lettasim.Config) *sim {
	tb.Helper()
	s, err := lettasim.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s)
	srv.Config.IdleTimeout = s.HTTPServer().IdleTimeout
	srv.Start()
	tb.Cleanup(srv.Close)
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	tb.Cleanup(transport.CloseIdleConnections)
	return &sim{
		Server: s, t: tb, url: srv.URL, header: http.Header{"User-Agent": {"rollout/test"}},
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

func (s *sim) request(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = s.header.Clone()
	return s.client.Do(req)
}

// try sends a request and returns the response, complete or not.
func (s *sim) try(method, path, body string) (*http.Response, []byte, error) {
	resp, err := s.request(s.t.Context(), method, path, body)
	if err != nil {
		return nil, nil, err
	}
	got, err := io.ReadAll(resp.Body)
	return resp, got, errors.Join(err, resp.Body.Close())
}

func (s *sim) do(status int, method, path, body string) []byte {
	s.t.Helper()
	resp, got, err := s.try(method, path, body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	if resp.StatusCode != status {
		s.t.Fatalf("%s %s = %d %.300s, want %d", method, path, resp.StatusCode, got, status)
	}
	if resp.ContentLength != int64(len(got)) || len(resp.TransferEncoding) > 0 {
		s.t.Fatalf("%s %s: content-length %d, transfer-encoding %v of %d bytes", method, path, resp.ContentLength, resp.TransferEncoding, len(got))
	}
	return got
}

// create creates an agent for an attempt and returns its id and state.
func (s *sim) create(task string, sample, attempt int) (string, []byte) {
	s.t.Helper()
	state := s.do(200, "POST", "/v1/agents/", fmt.Sprintf(
		`{"model":"sglang//models/qwen3","name":"test agent","tags":["rollout"],"metadata":{"rollout":{"task_id":%q,"sample_index":%d,"attempt":%d}}}`, task, sample, attempt))
	return field(s.t, state, "id"), state
}

const sendBody = `{"messages":[{"role":"user","content":"Add 2 and 3."}],"return_token_ids":true,"return_logprobs":true}`

// decode parses a JSON text as a T.
func decode[T any](tb testing.TB, text []byte) (v T) {
	tb.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		tb.Fatalf("%v in %.200s", err, text)
	}
	return v
}

func field(tb testing.TB, b []byte, key string) string {
	tb.Helper()
	raw := member(tb, b, key)
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return string(raw)
	}
	return s
}

func member(tb testing.TB, object []byte, key string) json.RawMessage {
	tb.Helper()
	return decode[map[string]json.RawMessage](tb, object)[key]
}

func list(tb testing.TB, b []byte) []json.RawMessage {
	tb.Helper()
	return decode[[]json.RawMessage](tb, b)
}

// steps returns the steps of a server run in their order.
func (s *sim) steps(run string) []json.RawMessage {
	s.t.Helper()
	return list(s.t, s.do(200, "GET", "/v1/runs/"+run+"/steps?order=asc&limit=1000", ""))
}

// A trace is a step's provider trace.
type trace struct {
	Response struct {
		OutputIDs []int64 `json:"output_ids"`
		Meta      struct {
			Prompt   int                   `json:"prompt_tokens"`
			Logprobs [][]*float64          `json:"output_token_logprobs"`
			Finish   struct{ Type string } `json:"finish_reason"`
		} `json:"meta_info"`
	} `json:"response_json"`
	Request struct {
		Messages []struct{ Role string }
		Tools    []json.RawMessage
	} `json:"request_json"`
}

func (s *sim) trace(step []byte) []byte {
	s.t.Helper()
	return s.do(200, "GET", "/v1/steps/"+field(s.t, step, "id")+"/trace", "")
}

// recordedLives has the case files, read without the code under test.
var recordedLives struct {
	sync.Once
	byName map[string]*lettasim.Recording
}

func readRecordings(tb testing.TB) map[string]*lettasim.Recording {
	tb.Helper()
	recordedLives.Do(func() {
		recordedLives.byName = map[string]*lettasim.Recording{}
		for _, name := range lettatest.Names(tb) {
			if r := lettatest.Read(tb, name); len(r.Exchanges) > 0 {
				recordedLives.byName[name] = r
			}
		}
	})
	return recordedLives.byName
}

var recordedCases = sync.OnceValues(func() ([]*lettasim.Case, error) { return lettasim.LoadCases(os.DirFS(recordings), ".") })

// loadCases loads the cases once. Servers only read them.
func loadCases(tb testing.TB) []*lettasim.Case {
	tb.Helper()
	cases, err := recordedCases()
	if err != nil {
		tb.Fatal(err)
	}
	return cases
}

type answer struct {
	Messages []struct {
		ID      string `json:"id"`
		Type    string `json:"message_type"`
		RunID   string `json:"run_id"`
		StepID  string `json:"step_id"`
		Content string `json:"content"`
	}
	StopReason struct {
		StopReason string `json:"stop_reason"`
	} `json:"stop_reason"`
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Steps      int `json:"step_count"`
		Context    int `json:"context_tokens"`
	}
	Logprobs *struct {
		Content []struct {
			Token   string
			Logprob float64
		}
	}
	Turns []turn
}

type turn struct {
	Role     string
	Output   []int64      `json:"output_ids"`
	Logprobs [][]*float64 `json:"output_token_logprobs"`
	Content  *string
	ToolName *string `json:"tool_name"`
	InputIDs []int32 `json:"input_ids"`
}

func parse(tb testing.TB, b []byte) *answer {
	tb.Helper()
	a := decode[answer](tb, b)
	return &a
}

func (a *answer) assistant() []turn {
	var out []turn
	for _, t := range a.Turns {
		if t.Role == "assistant" {
			out = append(out, t)
		}
	}
	return out
}
