package lettasim_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

func answersOf(t *testing.T, s *sim) []lettasim.Answer {
	t.Helper()
	return decode[[]lettasim.Answer](t, s.do(200, "GET", "/sim/answers", ""))
}

// TestTracedAnswers proves that a lost answer counts once, when all traces of its run were read,
// and that a delivered answer is not counted again.
func TestTracedAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{
		KeepAnswers: true, InputIDs: true, Password: "secret", Script: lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}},
		Faults: lettasim.Faults{{Kind: lettasim.Drop, Aim: []lettasim.Aim{{Task: "hit", Sample: 1}}}},
	})
	s.header.Set("Authorization", "Bearer secret")
	for sample := range 2 {
		id, _ := s.create("hit", sample, 1)
		_, _, err := s.try("POST", "/v1/agents/"+id+"/messages", sendBody)
		if (err != nil) != (sample == 1) {
			t.Fatalf("sample %d: %v", sample, err)
		}
		run := field(t, list(t, s.do(200, "GET", "/v1/runs/?agent_id="+id, ""))[0], "id")
		for k, step := range s.steps(run) {
			if n := len(answersOf(t, s)); n != 1 {
				t.Fatalf("sample %d: %d answers before trace %d, want 1", sample, n, k)
			}
			s.trace(step)
		}
		all := answersOf(t, s)
		if len(all) != sample+1 || all[sample].Sample != sample || all[sample].Traced != (sample == 1) || all[sample].Fault != "" ||
			all[sample].RunID != run || all[sample].Sampled == 0 || all[sample].Digest == "" {
			t.Errorf("sample %d: answers %+v", sample, all)
		}
	}
	s.header.Del("Authorization")
	s.do(401, "GET", "/v1/agents/", "")
	if n := len(answersOf(t, s)); n != 2 {
		t.Errorf("without the password %d answers succeed", n)
	}
	s.do(404, "GET", "/sim/", "")
	s.do(405, "GET", "/sim/refuse", "")
}

// TestRefuse proves that Refuse rejects all API requests until it ends.
func TestRefuse(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{})
	id, _ := s.create("t", 0, 1)
	s.do(200, "POST", "/sim/refuse?status=429&retry_after=89s", "")
	for _, path := range []string{"/v1/health/", "/v1/agents/" + id, "/v1/runs/"} {
		resp, _, err := s.try("GET", path, "")
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "89" {
			t.Errorf("GET %s = %v, %v", path, resp, err)
		}
	}
	if n := s.Stats().Refused; n != 3 {
		t.Errorf("%d refused, want 3", n)
	}
	s.do(400, "POST", "/sim/refuse?status=200", "")
	s.do(400, "POST", "/sim/refuse?status=503&retry_after=soon", "")
	s.do(200, "POST", "/sim/refuse?status=0", "")
	s.do(200, "GET", "/v1/agents/"+id, "")
	if !strings.Contains(string(s.do(200, "GET", "/sim/stats", "")), `"Refused":3`) {
		t.Error("the counts are not reported")
	}
}
