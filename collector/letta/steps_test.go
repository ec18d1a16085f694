package letta_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestSteps checks that the broken list falls back to server runs and reports it once.
func TestSteps(t *testing.T) {
	t.Parallel()
	p, _ := lettatest.NewReplay(t, "sixteen")
	p.Sends = 1
	var notices []string
	c := lettatest.Serve(t, p.ServeHTTP, func(cfg *letta.ClientConfig) { cfg.Notice = func(text string) { notices = append(notices, text) } })
	for _, descending := range []bool{false, true} {
		steps, err := c.Steps(t.Context(), letta.StepsQuery{AgentID: p.Made["id"].(string), Limit: 10, Descending: descending})
		if err != nil || len(steps) != 10 {
			t.Fatalf("Steps = %d, %v, want 10", len(steps), err)
		}
		first := lettatest.Object(t, letta.Read[letta.Step], p.Exchanges[0].Runs[0].Steps[0])
		if (steps[0].ID == first.ID) == descending {
			t.Errorf("descending %v begins with %s", descending, steps[0].ID)
		}
	}
	if _, err := c.Steps(t.Context(), letta.StepsQuery{}); !errors.Is(err, letta.ErrStepsListBroken) {
		t.Errorf("Steps of nothing = %v", err)
	}
	if len(notices) != 1 || p.Count("GET /v1/steps/") != 1 {
		t.Errorf("%d notices after %d tries, want one each", len(notices), p.Count("GET /v1/steps/"))
	}
}

// TestStepsFilters checks that the fallback applies the filters of the broken list.
func TestStepsFilters(t *testing.T) {
	t.Parallel()
	p, _ := lettatest.NewReplay(t, "sixteen")
	p.Sends = 1
	c := lettatest.Serve(t, p.ServeHTTP)
	agent := p.Made["id"].(string)
	all, err := c.Steps(t.Context(), letta.StepsQuery{AgentID: agent})
	if err != nil || len(all) != 16 {
		t.Fatalf("%d steps, %v", len(all), err)
	}
	id := func(i int) string { return all[i].ID }
	for _, tt := range []struct {
		name  string
		query letta.StepsQuery
		want  []int
		err   string
	}{
		{"after", letta.StepsQuery{After: id(13)}, []int{14, 15}, ""},
		{"before", letta.StepsQuery{Before: id(2)}, []int{0, 1}, ""},
		{"between", letta.StepsQuery{After: id(3), Before: id(6)}, []int{4, 5}, ""},
		{"between, and at most", letta.StepsQuery{After: id(3), Before: id(9), Limit: 2}, []int{4, 5}, ""},
		{"after, newest first", letta.StepsQuery{After: id(2), Descending: true}, []int{1, 0}, ""},
		{"before, newest first", letta.StepsQuery{Before: id(13), Descending: true}, []int{15, 14}, ""},
		{"model", letta.StepsQuery{Model: all[0].Model, Limit: 1}, []int{0}, ""},
		{"handle", letta.StepsQuery{Model: all[0].ModelHandle, Limit: 1}, []int{0}, ""},
		{"another model", letta.StepsQuery{Model: "another"}, nil, ""},
		{"feedback", letta.StepsQuery{Feedback: "positive"}, nil, ""},
		{"after a step that is not there", letta.StepsQuery{After: "step-x"}, nil, "no step step-x in the list"},
		{"before a step that is not there", letta.StepsQuery{Before: "step-x"}, nil, "no step step-x in the list"},
		{"the wrong way round", letta.StepsQuery{After: id(6), Before: id(3)}, nil, "no step " + id(6) + " before step " + id(3)},
	} {
		for _, byRun := range []bool{false, true} {
			if tt.query.AgentID = agent; byRun {
				tt.query.AgentID, tt.query.RunID = "", all[0].RunID
			}
			steps, err := c.Steps(t.Context(), tt.query)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%s: Steps = %v, want %q", tt.name, err, tt.err)
				}
				continue
			}
			var got, want []string
			for i := range steps {
				got = append(got, steps[i].ID)
			}
			for _, i := range tt.want {
				want = append(want, id(i))
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, by run %v: Steps = %q, %v, want %q", tt.name, byRun, got, err, want)
			}
		}
	}
}
