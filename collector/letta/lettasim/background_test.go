package lettasim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestStream proves that a stream has a ping, the messages and the end, and no turns.
func TestStream(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{})
	id, _ := s.create("stream", 0, 1)
	path := "/v1/agents/" + id + "/messages"
	resp, body, err := s.try("POST", path+"/stream", `{"input":"Add 2 and 3.","return_token_ids":true,"return_logprobs":true}`)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v", resp, err)
	}
	var types []string
	var run string
	events := strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n")
	for _, e := range events[:len(events)-1] {
		event := []byte(strings.TrimPrefix(e, "data: "))
		types = append(types, field(t, event, "message_type"))
		if types[len(types)-1] == "ping" {
			run = field(t, event, "run_id")
		}
	}
	n := len(types)
	if events[n] != "data: [DONE]" || types[0] != "ping" || !slices.Equal(types[n-2:], []string{"stop_reason", "usage_statistics"}) || !slices.Contains(types, "assistant_message") {
		t.Errorf("%q, then %q", types, events[n])
	}
	if strings.Contains(string(body), "output_ids") || strings.Contains(string(body), `"turns"`) {
		t.Error("an event has turns")
	}
	state := s.do(200, "GET", "/v1/runs/"+run, "")
	if field(t, state, "status") != "completed" || field(t, state, "metadata") != `{"run_type":"send_message_streaming"}` {
		t.Errorf("the run is %s", state)
	}
	s.do(422, "POST", path, `{"input":"x","streaming":true}`)
	s.do(422, "POST", path, `{"input":"x","stream_tokens":true}`)
	s.do(503, "POST", path+"/stream", `{"input":"x","background":true}`)
}

// TestAsync proves that an asynchronous send is answered at once with its run, which ends later.
func TestAsync(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := start(t, lettasim.Config{Latency: lettasim.Latency{Low: time.Hour}, Now: func() time.Time { return now }})
	id, _ := s.create("async", 0, 1)
	state := s.do(200, "POST", "/v1/agents/"+id+"/messages/async", sendBody)
	const metadata = `{"run_type":"send_message_async","lettuce":null}`
	if field(t, state, "status") != "created" || field(t, state, "background") != "true" || field(t, state, "metadata") != metadata || !strings.Contains(string(state), `"completed_at":null`) {
		t.Errorf("the run is %s", state)
	}
	now = now.Add(2 * time.Hour)
	state = s.do(200, "GET", "/v1/runs/"+field(t, state, "id"), "")
	if field(t, state, "status") != "completed" || field(t, state, "metadata") != metadata || strings.Contains(string(state), `"stop_reason":null`) {
		t.Errorf("the run is %s", state)
	}
}
