//go:build linux

package cases_test

import (
	"fmt"
	"strings"
)

// play returns a task whose messages name scripts, in order.
func play(id string, scripts ...string) task {
	k := task{id: id, tools: []string{"add", "mul", "echo", "lookup", "fail"}}
	for i, s := range scripts {
		k.says = append(k.says, fmt.Sprintf("Message %d: please go on. [script:%s]", i+1, s))
	}
	return k
}

func (k task) with(name string, v any) task {
	agent := map[string]any{name: v}
	for n, old := range k.agent {
		if n != name {
			agent[n] = old
		}
	}
	k.agent = agent
	return k
}

func (k task) uses(tools ...string) task { k.tools = tools; return k }
func (k task) fails(class string) task   { k.want.class = class; return k }
func (k task) may(reasons ...string) task {
	k.want.reasons = reasons
	return k
}
func (k task) gives(rows int) task { k.want.rows = rows; return k }
func (k task) saying(text string) task {
	k.says = []string{text}
	return k
}

// plain returns the standard tasks: each kind of reply, for agents with all tools, whose order the
// server does not keep.
func plain(handle string) []task {
	strict := map[string]any{"model_settings": map[string]any{"provider_type": "sglang", "temperature": 0.7, "parallel_tool_calls": false, "strict": true}}
	compacting := map[string]any{"context_window_limit": 3000}
	return []task{
		play("single", "single").uses().gives(1), play("newlines", "newlines").uses(), play("think", "think").uses(),
		play("tool", "tool").gives(1), play("tool-one", "tool").uses("add").gives(1), play("two", "two").gives(1), play("many", "many").gives(1),
		play("parallel", "parallel").with("create", parallelCalls), play("parallel-dropped", "parallel"),
		play("think-tool", "think-tool"), play("think-tool-kept", "think-tool").with("keep_reasoning", true).gives(1), play("think-parallel", "think-parallel").with("create", parallelCalls),
		play("text-tool", "text-tool"), play("text-around", "text-around"), play("override", "think-tool").with("override_model", handle),
		play("compact", "compact"), play("spaced", "spaced"), play("numbers", "numbers"), play("order", "order"), play("escaped", "escaped"), play("unicode", "unicode"),
		play("braces", "braces"), play("quoted", "quoted"), play("chars", "chars"), play("split", "split"), play("strict", "many").with("create", strict),
		play("fail", "fail"), play("unknown", "unknown"), play("malformed", "malformed"), play("unclosed", "unclosed"),
		play("null-arguments", "null-arguments").fails("malformed_call"),
		play("length", "length"), play("length-tool", "length-tool"), play("empty", "empty"), play("large", "large"),
		play("nan", "nan"), play("null", "null").fails("bad_request"), play("versions", "versions"), play("equal", "equal"),
		play("sixteen", "sixteen").gives(6), play("sixteen-kept", "sixteen").with("keep_reasoning", true).gives(1), play("max-steps", "sixteen").with("max_steps", 3),
		play("multi", "tool", "think-tool", "single"), play("multi-think", "think", "think", "text-tool", "think"), play("multi-empty", "empty", "tool"),
		play("approved", "guarded-two").uses("guarded", "add", "mul").with("approvals", "approve"), play("denied", "guarded").uses("guarded", "add").with("approvals", "deny"),
		play("approvals-twice", "guarded", "guarded-two", "tool").uses("add", "guarded", "echo").with("approvals", "approve"),
		play("compaction", "large", "tool", "think-tool").with("create", compacting).may("compacted", "no_prompt", "count_mismatch", "tool_order"),
		play("random-a", "random seed=1 calls=5"), play("random-b", "random seed=2 calls=4", "random seed=3 calls=3").with("create", parallelCalls), play("random-kept", "random seed=4 calls=6").with("keep_reasoning", true),
		play("long-user", "single").uses().saying(strings.Repeat("A long text with é, 日本語 and \"quotes\". ", 200)+"[script:tool]").uses("add", "echo"),
	}
}

// short returns the tasks of the short form: one of each kind.
func short(tasks []task) []task {
	var some []task
	for _, k := range tasks {
		switch k.id {
		case "single", "many", "parallel", "parallel-dropped", "think-tool", "text-around", "override", "numbers", "unicode", "chars", "malformed", "null-arguments",
			"length", "empty", "nan", "sixteen", "multi-think", "approved", "denied", "compaction", "random-b":
			some = append(some, k)
		}
	}
	return some
}
