package prompttest

import (
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// recording returns the life in the format of testdata/README.md.
func (l *life) recording() []byte {
	out := []byte(`{"case":` + quote(l.name) + `,"agent":` + l.agentState() + `,"system":[` + l.message(l.messageID, "", "system_message", 0, `"content":`+quote(l.systemText())) + `],"exchanges":[{`)
	out = append(out, `"request":{"method":"POST","path":"/v1/agents/`+l.agent+`/messages","body":{"messages":[{"role":"user","content":`+quote(l.question)+`}],"return_token_ids":true,"return_logprobs":true}},`...)
	out = append(out, `"response":{"status":200,"headers":{"content-type":"application/json"},"body":`...)
	messages := l.messages()
	out = append(l.appendReply(out, messages), `},"model_calls":[`...)
	for k := range l.generations {
		if k > 0 {
			out = append(out, ',')
		}
		g := &l.generations[k]
		out = tokenize.AppendIDs(append(out, `{"path":"/generate","input_ids":`...), g.prompt)
		out = g.appendEngine(append(out, `,"status":200,"response":`...))
		out = append(out, '}')
	}
	out = append(out, `],"runs":[{"run":`+l.runState()+`,"steps":[`...)
	for k := range l.generations {
		if k > 0 {
			out = append(out, ',')
		}
		out = append(out, l.step(k)...)
	}
	asked := l.message(l.id("message"), l.steps[0], "user_message", 0, `"content":`+quote(l.question))
	out = append(out, `],"messages":[`+strings.Join(append([]string{asked}, messages...), ",")+`],"traces":[`...)
	for k := range l.generations {
		if k > 0 {
			out = append(out, ',')
		}
		out = l.appendTrace(out, k)
	}
	return append(out, `]}]}]}`...)
}

// message returns one message as the server lists it. The server lists some stored messages as
// several messages. The parameter n is the index of this message among the messages of one stored
// message.
func (l *life) message(id, step, kind string, n int, rest string) string {
	otid, run := "null", "null"
	if step != "" {
		otid, step, run = fmt.Sprintf(`"%s%02d"`, strings.TrimPrefix(id, "message-")[:34], n), `"`+step+`"`, `"`+l.run+`"`
	} else {
		step = "null"
	}
	name := "null"
	if kind == "tool_return_message" {
		name = `"write_file"`
	}
	return `{"id":"` + id + `","date":"` + created + `","name":` + name + `,"message_type":"` + kind + `","otid":` + otid +
		`,"sender_id":null,"step_id":` + step + `,"is_err":null,"seq_id":null,"run_id":` + run + `,` + rest + `}`
}

// messages returns the messages of the run: the text, the tool call and the tool result of every
// generation.
func (l *life) messages() []string {
	var all []string
	for k := range l.generations {
		g, id := &l.generations[k], l.id("message")
		all = append(all, l.message(id, l.steps[k], "assistant_message", 0, `"content":`+quote(g.content)))
		if g.tool == "" {
			continue
		}
		call := `{"name":"` + g.tool + `","arguments":` + quote(g.stored()) + `,"tool_call_id":"` + g.callID + `"}`
		all = append(all, l.message(id, l.steps[k], "tool_call_message", 1, `"tool_call":`+call+`,"tool_calls":[`+call+`]`))
		result := `"tool_return":` + quote(g.result) + `,"status":"success","tool_call_id":"` + g.callID + `","stdout":[],"stderr":[]`
		all = append(all, l.message(l.id("message"), l.steps[k], "tool_return_message", 0, result+`,"tool_returns":[{"type":"tool",`+result+`}]`))
	}
	return all
}

func (l *life) appendReply(dst []byte, messages []string) []byte {
	dst = append(dst, `{"messages":[`+strings.Join(messages, ",")+`],"stop_reason":{"message_type":"stop_reason","stop_reason":"end_turn"},`...)
	prompt, completion := 0, 0
	for i := range l.generations {
		prompt, completion = prompt+len(l.generations[i].prompt), completion+len(l.generations[i].output)
	}
	last := &l.generations[len(l.generations)-1]
	dst = fmt.Appendf(dst, `"usage":{"message_type":"usage_statistics","completion_tokens":%d,"prompt_tokens":%d,"total_tokens":%d,"step_count":%d,"run_ids":null,"cached_input_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"context_tokens":%d},`,
		completion, prompt, prompt+completion, len(l.generations), len(last.prompt)+len(last.output))
	dst = append(dst, `"logprobs":{"content":[`...)
	for i, id := range last.output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendFloat(fmt.Appendf(dst, `{"token":"%d","bytes":null,"logprob":`, id), last.logprobs[i])
		dst = append(dst, `,"top_logprobs":[]}`...)
	}
	dst = append(dst, `],"refusal":null},"turns":[`...)
	for k := range l.generations {
		g := &l.generations[k]
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = tokenize.AppendIDs(append(dst, `{"role":"assistant","output_ids":`...), g.output)
		dst = g.appendLogprobs(append(dst, `,"output_token_logprobs":`...))
		dst = append(dst, `,"content":`+quote(g.content)+`,"tool_name":null}`...)
		if g.tool != "" {
			dst = append(dst, `,{"role":"tool","output_ids":null,"output_token_logprobs":null,"content":`+quote(g.returned())+`,"tool_name":"`+g.tool+`"}`...)
		}
	}
	return append(dst, `]}`...)
}

func (g *generation) appendEngine(dst []byte) []byte {
	dst = tokenize.AppendIDs(append(dst, `{"text":`+quote(g.text)+`,"output_ids":`...), g.output)
	dst = fmt.Appendf(dst, `,"meta_info":{"id":"%032x","finish_reason":{"type":"stop","matched":%d},"prompt_tokens":%d,"weight_version":"default","total_retractions":0,"input_token_logprobs":[],"output_token_logprobs":`, len(g.prompt), endID, len(g.prompt))
	return fmt.Appendf(g.appendLogprobs(dst), `,"completion_tokens":%d,"cached_tokens":0,"e2e_latency":0.000484}}`, len(g.output))
}

func (l *life) appendTrace(dst []byte, k int) []byte {
	g := &l.generations[k]
	dst = append(dst, `{"created_by_id":"`+user+`","last_updated_by_id":"`+user+`","created_at":"2026-11-21T09:41:24.414468Z","updated_at":"2026-11-21T09:41:24.426495Z","id":"`+l.id("provider_trace")+`","request_json":{"model":"/models/qwen3","messages":[`...)
	for i, m := range g.asked {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m...)
	}
	dst = append(dst, `],"logprobs":true,"max_completion_tokens":4096,"temperature":1.0,"user":"`+user+`","parallel_tool_calls":false,"tools":[{"type":"function","function":`+schema+`}],"tool_choice":"auto"},"response_json":`...)
	dst = g.appendEngine(dst)
	return append(dst, `,"step_id":"`+l.steps[k]+`","agent_id":"`+l.agent+`","agent_tags":["rollout"],"call_type":"agent_step","run_id":"`+l.run+`","source":null,"org_id":"org-00000000-0000-4000-8000-000000000000","user_id":"`+user+`","compaction_settings":null,"llm_config":`+llmConfig+`,"billing_context":null}`...)
}

func (l *life) step(k int) string {
	g, stop := &l.generations[k], "null"
	if k == len(l.generations)-1 {
		stop = `"end_turn"`
	}
	return fmt.Sprintf(`{"id":"%s","origin":null,"organization_id":"org-00000000-0000-4000-8000-000000000000","provider_id":null,"run_id":"%s","agent_id":"%s","provider_name":"openai","provider_category":"base","model":"/models/qwen3","model_handle":"%s","model_endpoint":"http://127.0.0.1:30000/v1","context_window_limit":32000,"completion_tokens":%d,"prompt_tokens":%d,"total_tokens":%d,"cached_input_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"completion_tokens_details":null,"prompt_tokens_details":null,"stop_reason":%s,"tags":[],"tid":null,"trace_id":null,"request_id":null,"messages":[],"feedback":null,"project_id":null,"error_type":null,"error_data":null,"status":"success"}`,
		l.steps[k], l.run, l.agent, handle, len(g.output), len(g.prompt), len(g.prompt)+len(g.output), stop)
}

func (l *life) runState() string {
	return `{"id":"` + l.run + `","status":"completed","created_at":"2026-11-21T09:41:20.304807Z","completed_at":"2026-11-21T09:41:24.838152","agent_id":"` + l.agent + `","conversation_id":null,"base_template_id":null,"background":false,"metadata":{"run_type":"send_message"},"request_config":{"use_assistant_message":true,"assistant_message_tool_name":"send_message","assistant_message_tool_kwarg":"message","include_return_message_types":null},"stop_reason":"end_turn","callback_url":null,"callback_sent_at":null,"callback_status_code":null,"callback_error":null,"ttft_ns":null,"total_duration_ns":null}`
}

// llmConfig is the configuration of an agent that keeps the text before tool calls.
const llmConfig = `{"model":"/models/qwen3","display_name":null,"model_endpoint_type":"openai","model_endpoint":"http://127.0.0.1:30000/v1","provider_name":"sglang","provider_category":"base","model_wrapper":null,"context_window":32000,"put_inner_thoughts_in_kwargs":false,"handle":"sglang//models/qwen3","temperature":1.0,"max_tokens":4096,"enable_reasoner":true,"reasoning_effort":"high","max_reasoning_tokens":0,"effort":null,"frequency_penalty":null,"compatibility_type":null,"verbosity":null,"tier":null,"parallel_tool_calls":false,"response_format":null,"strict":false,"return_logprobs":true,"top_logprobs":null,"return_token_ids":true,"tool_call_parser":null}`

func (l *life) agentState() string {
	return `{"created_by_id":"` + user + `","last_updated_by_id":"` + user + `","created_at":"2026-11-21T09:41:20.099129Z","updated_at":"2026-11-21T09:41:20.109901Z","id":"` + l.agent + `","name":"rollout-long","tool_rules":[],"message_ids":["` + l.messageID + `"],"system":` + quote(system) +
		`,"agent_type":"letta_v1_agent","llm_config":` + llmConfig + `,"embedding_config":null,"model":"` + handle + `","embedding":null,"model_settings":{"max_output_tokens":4096,"parallel_tool_calls":true,"provider_type":"sglang","temperature":1.0,"reasoning":{"reasoning_effort":"high"},"response_format":null,"strict":false,"tool_call_parser":null},"response_format":null,"description":null,"metadata":null,"memory":{"agent_type":"letta_v1_agent","git_enabled":false,"blocks":[],"file_blocks":[],"prompt_template":""},"blocks":[],` +
		`"tools":[{"id":"tool-15df1d15-081e-4e4f-a3ee-854d8f0ed55e","tool_type":"custom","description":"Write a file and run the checks of its folder.","source_type":"json","name":"write_file","tags":[],"source_code":"def write_file(path, content, overwrite=False): ...\n","json_schema":` + schema + `,"args_json_schema":{},"return_char_limit":50000,"pip_requirements":null,"npm_requirements":null,"default_requires_approval":null,"enable_parallel_execution":false,"created_by_id":"` + user + `","last_updated_by_id":"` + user + `","metadata_":{"tool_hash":"7f8c1b6e6de2"},"project_id":null}],` +
		`"sources":[],"tags":["rollout"],"tool_exec_environment_variables":[],"secrets":[],"project_id":null,"template_id":null,"base_template_id":null,"deployment_id":null,"entity_id":null,"identity_ids":[],"identities":[],"pending_approval":null,"message_buffer_autoclear":false,"enable_sleeptime":null,"multi_agent_group":null,"managed_group":null,"last_run_completion":null,"last_run_duration_ms":null,"last_stop_reason":null,"timezone":"UTC","max_files_open":5,"per_file_view_window_char_limit":15000,"hidden":null}`
}
