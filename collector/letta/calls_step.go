package letta

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A StepsQuery chooses steps. Where the server's own list is broken (0.16.7), a
// RunID or an AgentID is needed, and only they and Limit are heeded.
type StepsQuery struct {
	RunID   string
	AgentID string

	Before, After string
	Start, End    time.Time
	Model         string
	TraceIDs      []string
	Feedback      string // positive, negative
	HasFeedback   *bool
	Tags          []string // accepted and ignored by 0.16.7
	ProjectID     string
	// Descending is newest first.
	Descending bool
	// Limit is how many at most; 0 means 50, the server's default.
	Limit int
}

// ErrStepsListBroken is wrapped where the server cannot list steps and the query
// names neither a server run nor an agent to go by.
var ErrStepsListBroken = errors.New("letta: this server cannot list steps; name a server run or an agent")

// Steps lists steps. In 0.16.7 the server's list call always answers 400 (a bool
// goes where a text is expected, steps.py:61); then the steps of the server run,
// or of the agent's newest runs, are taken instead, and Notice is told once.
func (c *Client) Steps(ctx context.Context, query StepsQuery) ([]Step, error) {
	if query.Limit <= 0 {
		query.Limit = 50
	}
	if query.RunID == "" && !c.stepsBroken.Load() {
		steps, err := c.listSteps(ctx, query)
		e := (*APIError)(nil)
		if err == nil || !errors.As(err, &e) || e.Status != http.StatusBadRequest || !strings.HasPrefix(e.Detail, "Argument order") {
			return steps, err
		}
		c.stepsBroken.Store(true)
		c.notice("this server's list of steps is broken (" + e.Detail + "); going by server runs instead")
	}
	switch {
	case query.RunID != "":
		return c.stepsOfRuns(ctx, query, []string{query.RunID})
	case query.AgentID != "":
		runs, err := c.Runs(ctx, RunsQuery{AgentID: query.AgentID, Ascending: !query.Descending, Limit: 1000})
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(runs))
		for i := range runs {
			ids[i] = runs[i].ID
		}
		return c.stepsOfRuns(ctx, query, ids)
	}
	return nil, ErrStepsListBroken
}

func (c *Client) stepsOfRuns(ctx context.Context, query StepsQuery, runs []string) ([]Step, error) {
	var all []Step
	for _, id := range runs {
		steps, err := c.RunSteps(ctx, id)
		if err != nil {
			return nil, err
		}
		if query.Descending {
			for i, j := 0, len(steps)-1; i < j; i, j = i+1, j-1 {
				steps[i], steps[j] = steps[j], steps[i]
			}
		}
		all = append(all, steps...)
		if len(all) >= query.Limit {
			return all[:query.Limit], nil
		}
	}
	return all, nil
}

func (c *Client) listSteps(ctx context.Context, query StepsQuery) ([]Step, error) {
	q := url.Values{"order": {order(!query.Descending)}, "limit": {strconv.Itoa(query.Limit)}}
	set(q, "agent_id", query.AgentID)
	set(q, "before", query.Before)
	set(q, "after", query.After)
	set(q, "model", query.Model)
	set(q, "feedback", query.Feedback)
	set(q, "project_id", query.ProjectID)
	if !query.Start.IsZero() {
		q.Set("start_date", query.Start.UTC().Format(time.RFC3339))
	}
	if !query.End.IsZero() {
		q.Set("end_date", query.End.UTC().Format(time.RFC3339))
	}
	if query.HasFeedback != nil {
		q.Set("has_feedback", strconv.FormatBool(*query.HasFeedback))
	}
	for _, id := range query.TraceIDs {
		q.Add("trace_ids", id)
	}
	for _, t := range query.Tags {
		q.Add("tags", t)
	}
	var out []Step
	err := c.call(ctx, &request{op: "list steps", method: http.MethodGet, path: "/v1/steps/", query: q}, nil, &out)
	return out, err
}

// Step returns a step.
func (c *Client) Step(ctx context.Context, id string) (*Step, error) {
	out := new(Step)
	if err := c.call(ctx, &request{op: "get step", method: http.MethodGet, path: "/v1/steps/" + seg(id)}, nil, out); err != nil {
		return nil, err
	}
	return out, nil
}

// StepMetrics returns the times of a step.
func (c *Client) StepMetrics(ctx context.Context, id string) (*StepMetrics, error) {
	out := new(StepMetrics)
	err := c.call(ctx, &request{op: "metrics of step", method: http.MethodGet, path: "/v1/steps/" + seg(id) + "/metrics"}, nil, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// StepTrace returns the trace of a step, or nil where the server has none: not
// yet, as it is written after the answer, or for good (see ProviderTrace). Traces
// outlive their agent.
func (c *Client) StepTrace(ctx context.Context, id string) (*ProviderTrace, error) {
	var out *ProviderTrace
	err := c.call(ctx, &request{op: "trace of step", method: http.MethodGet, path: "/v1/steps/" + seg(id) + "/trace"}, nil, &out)
	return out, err
}

// PollStepTrace is StepTrace, tried up to three times within some 200 ms where
// the trace may only be late.
func (c *Client) PollStepTrace(ctx context.Context, id string) (*ProviderTrace, error) {
	const tries, pause = 3, 100 * time.Millisecond
	for i := 1; ; i++ {
		t, err := c.StepTrace(ctx, id)
		if t != nil || err != nil || i == tries {
			return t, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// SetFeedback stores what a person thinks of a step.
func (c *Client) SetFeedback(ctx context.Context, id string, f Feedback) (*Step, error) {
	out := new(Step)
	err := c.call(ctx, &request{op: "feedback of step", method: http.MethodPatch, path: "/v1/steps/" + seg(id) + "/feedback"}, f, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// StepMessages returns the messages of a step, oldest first. What the assistant
// said comes as ReasoningMessage here (steps.py:158).
func (c *Client) StepMessages(ctx context.Context, id string) (Messages, error) {
	return c.messagePages(ctx, "messages of step", "/v1/steps/"+seg(id)+"/messages")
}
