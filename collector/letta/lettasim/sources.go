package lettasim

import (
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
	"github.com/rollout-rl/rollout/tokenize"
)

// A replayedRun is a recorded run with the ids of the replayed agent.
type replayedRun struct {
	rec  recordedRun
	ids  []string
	face Face
}

func (r *replayedRun) state() *object {
	o, err := parseObject(r.rec.run.with(r.ids))
	if err != nil {
		return newObject() // cannot happen, because LoadCases has checked the case
	}
	return o
}

func (r *replayedRun) step(k int) *object {
	o, err := parseObject(r.rec.steps[k].with(r.ids))
	if err != nil {
		return newObject()
	}
	return o
}

func (r *replayedRun) messages() [][]byte {
	out := make([][]byte, len(r.rec.messages))
	for i, m := range r.rec.messages {
		out[i] = m.with(r.ids)
	}
	return out
}

func (r *replayedRun) trace(k int) []byte {
	if r.rec.traces[k].raw == nil {
		return nil
	}
	return r.face.trace(r.rec.traces[k].with(r.ids))
}

// A scriptedRun is a run of a script. After planning, its script changes only if the run is
// canceled. A run can be canceled only before it is finished and while Server.mu is held.
type scriptedRun struct {
	runHead
	seed         uint64
	tags         []string
	tools        []byte
	keepsText    bool
	conversation bool
	stepIDs      []string
	script       *script
	mangle       mangle
	inputIDs     bool   // whether traces contain the prompt ids
	config       []byte // the agent's llm_config
	trainer      *trainer
	versions     []int // the versions of the calls; nil if the weights never change
}

// The method cancel cuts the script off after its first call.
func (r *scriptedRun) cancel() bool {
	r.script = r.script.upTo(1, "cancelled")
	r.mangle = mangle{}
	return true
}

func (r *scriptedRun) status() string {
	switch r.script.stop {
	case "end_turn", "max_steps", "tool_rule", "requires_approval":
		return "completed"
	case "cancelled":
		return "cancelled"
	}
	return "failed"
}

func (r *scriptedRun) state() *object {
	if r.conversation { // in 0.16.7, the run of a conversation never finishes
		o := r.runState("send_conversation_message", "created", "", "")
		o.set("completed_at", []byte("null"))
		return o
	}
	return r.runState("send_message", r.status(), r.script.stop, "")
}

func (r *scriptedRun) step(k int) *object {
	if k >= len(r.script.calls) { // the call was cut off when the run was canceled
		return r.stepState(r.stepIDs[k], 0, 0, "cancelled", "cancelled")
	}
	c := &r.script.calls[k]
	stop := ""
	if k == len(r.script.calls)-1 && r.script.stop != "max_steps" {
		stop = r.script.stop
	}
	return r.stepState(r.stepIDs[k], len(c.prompt), len(c.output), "success", stop)
}

func (r *scriptedRun) messages() [][]byte { return r.list(true) }

// trace returns the trace of step k, which contains the request to the engine and the engine's
// answer.
func (r *scriptedRun) trace(k int) []byte {
	if k >= len(r.script.calls) || r.mangle.hits(NaNLogprob, k) || r.mangle.hits(EmptyTurn, k) {
		return nil
	}
	c := &r.script.calls[k]
	_, model := splitHandle(r.handle)
	id := draw(r.seed, "trace", r.stepIDs[k]).uuid()
	out := []byte(`{"created_by_id":"` + user + `","last_updated_by_id":"` + user + `","created_at":"2026-01-05T10:00:00.000000Z","updated_at":"2026-01-05T10:00:00.000000Z","id":"provider_trace-` + id + `","request_json":{"model":`)
	out = append(quote(out, model), `,"messages":`...)
	out = append(out, array(c.messages[:c.asked])...)
	out = append(out, `,"logprobs":true,"max_completion_tokens":4096,"temperature":1.0,"user":"`+user+`","parallel_tool_calls":false`...)
	if tools := traceTools(r.tools); tools != nil {
		out = append(append(append(out, `,"tools":`...), tools...), `,"tool_choice":"auto"`...)
	}
	if r.inputIDs {
		out = tokenize.AppendIDs(append(out, `,"input_ids":`...), c.prompt)
	}
	out = append(out, `},"response_json":`...)
	if c.answer != nil {
		return r.endTrace(append(out, c.answer.raw...), k)
	}
	body := sglang.Answer{
		Text: c.text, ID: strings.ReplaceAll(id, "-", ""), Version: r.weightVersion(k), Finish: []byte(`{"type":"stop","matched":151645}`),
		Logprobs: c.appendLogprobs(nil, k, r.mangle, traceFrom), PromptTokens: len(c.prompt), CompletionTokens: len(c.output), Seconds: 0.01,
	}
	if c.use != nil {
		body.Text += c.use.text()
	}
	if c.end != "" {
		body.Finish = []byte(c.end)
	}
	if r.mangle.kind != NoTurns { // an answer without turns does not come from SGLang's native endpoint
		body.OutputIDs = c.appendOutput(nil, k, r.mangle)
	}
	return r.endTrace(body.Append(out), k)
}

// endTrace appends the part of the trace of call k that follows the engine's answer.
func (r *scriptedRun) endTrace(out []byte, k int) []byte {
	out = fmt.Appendf(out, `,"step_id":"%s","agent_id":"%s","agent_tags":`, r.stepIDs[k], r.agent)
	out = quoteAll(out, r.tags)
	return append(out, `,"call_type":"agent_step","run_id":"`+r.id+`","source":null,"org_id":"`+organization+`","user_id":"`+user+`","compaction_settings":null,"llm_config":`+string(r.config)+`,"billing_context":null}`...)
}

// traceTools returns the tools in an AgentState in the format of an engine request.
func traceTools(tools []byte) []byte {
	var out [][]byte
	for _, t := range split(tools) {
		if o, err := parseObject(t); err == nil && o.values["json_schema"] != nil {
			out = append(out, append(append([]byte(`{"type":"function","function":`), o.values["json_schema"]...), '}'))
		}
	}
	if out == nil {
		return nil
	}
	return array(out)
}

// A failedRun is a run that ended with an error. It has at most one step and no messages.
type failedRun struct {
	runHead
	stepID    string // empty if there is no step
	stop      string // the step's stop reason
	errorType string
	problem   string
}

func (r *failedRun) state() *object {
	return r.runState("send_message", "failed", "", r.problem)
}

func (r *failedRun) step(int) *object {
	o := r.stepState(r.stepID, 0, 0, "failed", r.stop)
	o.text("error_type", r.errorType)
	data := quote([]byte(`{"message":`), r.problem)
	data = quote(append(data, `,"traceback":`...), "Traceback (most recent call last):\n  (simulated)\n"+r.errorType+": "+r.problem+"\n")
	o.set("error_data", append(data, `,"details":null}`...))
	return o
}

func (r *failedRun) messages() [][]byte { return nil }
func (r *failedRun) trace(int) []byte   { return nil }
