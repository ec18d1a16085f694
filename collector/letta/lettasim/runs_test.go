package lettasim_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

func (s *sim) ids(path string) (ids []string) {
	s.t.Helper()
	for _, one := range decode[[]struct{ ID string }](s.t, s.do(200, "GET", path, "")) {
		ids = append(ids, one.ID)
	}
	return slices.Compact(ids) // a stored message can have several parts
}

// TestListRuns checks filters, orders and cursors of the list of server runs, and of the messages
// of an agent, as in 0.16.7.
func TestListRuns(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{InputIDs: true})
	var agents [2]string
	for i := range agents {
		agents[i] = field(t, s.do(200, "POST", "/v1/agents/", `{"model":"sglang//models/qwen3"}`), "id")
	}
	for i := range 6 {
		s.do(200, "POST", "/v1/agents/"+agents[i%2]+"/messages", `{"input":"Add 1 and 2."}`)
	}
	all := s.ids("/v1/runs/?order=asc")
	if len(all) != 6 {
		t.Fatalf("%d runs", len(all))
	}
	down := slices.Clone(all)
	slices.Reverse(down)
	gone := "run-00000000-0000-4000-8000-000000000000"
	for _, test := range []struct {
		query string
		want  []string
	}{
		{"", down},
		{"limit=2", down[:2]},
		{"order=asc&limit=2&before=" + all[1], all[2:4]},
		{"order=asc&after=" + all[2], all[:2]},
		{"before=" + down[1], down[2:]},
		{"after=" + down[1], down[:1]},
		{"order=asc&limit=3&after=" + gone, all[:3]}, // an unknown run is not a cursor
		{"order=asc&agent_id=" + agents[0], []string{all[0], all[2], all[4]}},
		{"order=asc&agent_ids=" + agents[0] + "&agent_ids=" + agents[1], all},
		{"order=asc&agent_id=" + agents[1] + "&before=" + all[2], []string{all[3], all[5]}}, // of another agent
		{"statuses=completed&order=asc", all},
		{"active=true", nil},
		{"statuses=created&statuses=running", nil},
		{"conversation_id=conv-1", nil},
	} {
		if got := s.ids("/v1/runs/?" + test.query); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.query, got, test.want)
		}
	}
	for query, status := range map[string]int{"limit=0": 422, "limit=1001": 422, "limit=x": 422, "statuses=done": 400} {
		s.do(status, "GET", "/v1/runs/?"+query, "")
	}

	messages := s.ids("/v1/agents/" + agents[0] + "/messages?order=asc")
	at := fmt.Sprintf("/v1/agents/%s/messages?limit=2&", agents[0])
	for query, want := range map[string][]string{
		"order=asc&before=" + messages[3]: messages[:2],
		"before=" + messages[3]:           {messages[2], messages[1]},
		"order=asc&after=" + messages[3]:  messages[4:6],
	} {
		if got := s.ids(at + query); len(got) == 0 || !slices.Equal(got, want[:len(got)]) { // several messages with one id can fill the page
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	s.do(404, "GET", at+"before=message-none", "")
}
