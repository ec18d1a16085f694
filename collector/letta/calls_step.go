package letta

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
)

// A StepsQuery selects steps. RunID or AgentID is required if the server cannot list steps
// (0.16.7).
type StepsQuery struct {
	RunID   string
	AgentID string

	// Before and After are ids of steps. The list starts after the step After and ends before the
	// step Before, in the requested order.
	Before, After string
	Model         string // the model's name or handle
	Feedback      string // positive or negative
	// If Descending is true, the newest step is first.
	Descending bool
	// Limit is the maximum number of steps in the list. The default is 50, as on the server.
	Limit int
}

// ErrStepsListBroken means that the server cannot list steps and that the query names neither a
// server run nor an agent.
var ErrStepsListBroken = errors.New("letta: this server cannot list steps")

// Steps lists steps. Server 0.16.7 answers every list call with 400, because of a bug (steps.py:61
// passes a bool instead of a string). If the server has this bug, Steps fetches the steps of each
// of the agent's server runs and filters the steps itself. Steps reports this bug once to
// ClientConfig.Notice. If the query names a server run, Steps does not use the list call, because
// that call cannot filter by run.
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
		c.notice("this server cannot list steps (" + e.Detail + "); listing the steps of server runs instead")
	}
	switch {
	case query.RunID == "" && query.AgentID == "":
		return nil, fmt.Errorf("%w: specify a server run or an agent", ErrStepsListBroken)
	case query.RunID != "":
		return c.stepsOfRuns(ctx, query, []string{query.RunID})
	}
	runs, err := c.AllRuns(ctx, RunsQuery{AgentID: query.AgentID, Ascending: !query.Descending})
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	return c.stepsOfRuns(ctx, query, ids)
}

// stepsOfRuns returns the steps in the given runs that match the query, in the order of the runs.
func (c *Client) stepsOfRuns(ctx context.Context, query StepsQuery, runs []string) ([]Step, error) {
	var all []Step
	begun := query.After == ""
	for _, id := range runs {
		steps, err := c.RunSteps(ctx, id)
		if err != nil {
			return nil, err
		}
		if query.Descending {
			slices.Reverse(steps)
		}
		for i := range steps {
			s := &steps[i]
			switch {
			case query.Before != "" && s.ID == query.Before:
				if !begun {
					return nil, fmt.Errorf("list steps: %w", unknownStep(query.After, "before step "+query.Before))
				}
				return all, nil
			case s.ID == query.After:
				begun = true
			case begun && len(all) < query.Limit && query.matches(s):
				all = append(all, *s)
			}
		}
		// If Before is set, continue until this step is found.
		if len(all) == query.Limit && query.Before == "" {
			break
		}
	}
	switch {
	case !begun:
		return nil, fmt.Errorf("list steps: %w", unknownStep(query.After, "in the list"))
	case query.Before != "":
		return nil, fmt.Errorf("list steps: %w", unknownStep(query.Before, "in the list"))
	}
	return all, nil
}

func unknownStep(id, where string) error {
	return &classed{ErrRejected, fmt.Errorf("no step %s %s", id, where)}
}

// matches reports whether the step matches the query, except for Before, After and Limit.
func (q *StepsQuery) matches(s *Step) bool {
	return (q.Model == "" || s.Model == q.Model || s.ModelHandle == q.Model) &&
		(q.Feedback == "" || s.Feedback == q.Feedback) && (q.AgentID == "" || s.AgentID == q.AgentID)
}

func (c *Client) listSteps(ctx context.Context, query StepsQuery) ([]Step, error) {
	q := url.Values{"order": {order(!query.Descending)}, "limit": {strconv.Itoa(query.Limit)}}
	set(q, "agent_id", query.AgentID)
	set(q, "before", query.Before)
	set(q, "after", query.After)
	set(q, "model", query.Model)
	set(q, "feedback", query.Feedback)
	return fetchList[Step](ctx, c, &request{op: "list steps", method: http.MethodGet, target: at("/v1/steps/"), query: q})
}

// Step returns a step.
func (c *Client) Step(ctx context.Context, id string) (*Step, error) {
	return fetch[Step](ctx, c, &request{op: "get step", method: http.MethodGet, target: at("/v1/steps/{}", id)}, nil)
}

// StepMetrics returns the durations that the server measured for a step.
func (c *Client) StepMetrics(ctx context.Context, id string) (*StepMetrics, error) {
	return fetch[StepMetrics](ctx, c, &request{op: "get metrics of step", method: http.MethodGet, target: at("/v1/steps/{}/metrics", id)}, nil)
}

// StepTrace returns the trace of a step, or nil if the server does not have it. The server writes a
// trace only after it has sent the answer, or not at all (see [ProviderTrace]). A trace remains
// when its agent is deleted.
func (c *Client) StepTrace(ctx context.Context, id string) (*ProviderTrace, error) {
	out, err := fetch[ProviderTrace](ctx, c, &request{op: "get trace of step", method: http.MethodGet, target: at("/v1/steps/{}/trace", id)}, nil)
	if err != nil || out.JSON.IsNull() {
		return nil, err
	}
	return out, nil
}

// traceless is the number of missing traces after which the client assumes that the server keeps no
// traces.
const traceless = 8

// PollStepTrace calls [Client.StepTrace] up to three times within about 200 ms, because the trace
// can be late. If the server seems to keep no traces, PollStepTrace tries only once.
func (c *Client) PollStepTrace(ctx context.Context, id string) (*ProviderTrace, error) {
	const tries, pause = 3, 100 * time.Millisecond
	for i := 1; ; i++ {
		t, err := c.StepTrace(ctx, id)
		switch {
		case t != nil:
			c.traced.Store(true)
			return t, nil
		case err != nil:
			return nil, err
		case i == tries, !c.traced.Load() && c.untraced.Load() >= traceless:
			c.untraced.Add(1)
			return nil, nil
		}
		if !wait.For(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

// SetFeedback stores a person's feedback on a step.
func (c *Client) SetFeedback(ctx context.Context, id string, f Feedback) (*Step, error) {
	return fetch[Step](ctx, c, &request{op: "set feedback of step", method: http.MethodPatch, target: at("/v1/steps/{}/feedback", id)}, f)
}

// StepMessages returns the messages of a step, oldest first. In this list, assistant text appears
// in messages of type reasoning_message (steps.py:158).
func (c *Client) StepMessages(ctx context.Context, id string) (Messages, error) {
	return c.messagePages(ctx, "list messages of step", at("/v1/steps/{}/messages", id))
}
