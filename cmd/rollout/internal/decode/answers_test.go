package decode

import "github.com/rollout-rl/rollout/tokenize"

const (
	prompted = tokenize.RolePrompt
	sampled  = tokenize.RoleAssistant
	returned = tokenize.RoleTool
	asked    = tokenize.RoleUser
)

// An answering is a model of a form: its templates, and rows with answers in its syntax.
type answering struct {
	special   []string
	templates []string
	replace   map[string]string
	spans     [][]spanText
}

// answers lists models by the name of their form.
var answers = map[string][]answering{
	"ChatML": {{
		templates: []string{"cfg_qwen2.5.jinja", "cfg_qwen3.jinja", "Qwen3-Coder.jinja", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", "HuggingFaceTB-SmolLM3-3B.jinja"},
		replace:   map[string]string{"<s_bos>": "", "<s_eos>": ""},
		spans: [][]spanText{
			{
				{prompted, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nAdd é 🙂.<|im_end|>\n<|im_start|>assistant\n"},
				{sampled, "<think>\nHm.\n</think>\n\nI add.<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>"},
				{returned, "\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n<|im_start|>assistant\n"},
				{sampled, "Done.<|im_end|>"},
				{asked, "\n<|im_start|>user\nMore.<|im_end|>\n<|im_start|>assistant\n"},
				{sampled, "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n01 é\n</parameter>\n</function>\n</tool_call><|im_end|>"},
			},
			{{prompted, "Add."}, {sampled, "Yes<|im_end|>"}, {returned, "Plain."}, {sampled, "No"}, {asked, "Plain too."}},
			{{prompted, "Add."}, {sampled, "<tool_call><function=write><parameter=a>\tif x:\r\f\b\x7f\u0085\ufeff\u2029<&>\"\\</parameter></function></tool_call><|im_end|>"}},
			{{prompted, "<|im_start|>king\nAdd.<|im_end|>\n<|im_start|>assistant\n"}, {sampled, "<tool_call>{\"name\": \"add\",}</tool_call><tool_call>\n{\"na"}},
			{{prompted, "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"}, {sampled, "Yes<|im_end|>\n<|im_start|>user\nNo<|im_end|>"}, {sampled, ""}},
			{{prompted, "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"}, {sampled, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": NaN}}</tool_call><tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"a\": 2}}</tool_call>"}},
			{{prompted, "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"}, {sampled, "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call><tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call><tool_call>{\"name\": \"add\", \"arguments\": null}</tool_call><tool_call>{\"name\": \"add\"}</tool_call><tool_call>{\"name\": 5, \"arguments\": {}}</tool_call><tool_call>[{\"name\": \"add\", \"arguments\": {}}]</tool_call>"}},
		},
	}},
	"Llama 3": {{
		special:   []string{"<|python_tag|>"},
		templates: []string{"meta-llama-Llama-3.1-8B-Instruct.jinja", "cfg_llama-3-8b-instruct.jinja", "meetkai-functionary-medium-v3.1.jinja"},
		replace:   map[string]string{"<s_bos>": "", "<s_eos>": ""},
		spans: [][]spanText{
			{
				{prompted, "<|start_header_id|>user<|end_header_id|>\n\nAdd.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
				{sampled, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}<|eom_id|>"},
				{returned, "<|start_header_id|>ipython<|end_header_id|>\n\n1<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
				{sampled, "<|python_tag|>{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": \"x;y\"}}<|eom_id|>"},
				{returned, "<|start_header_id|>ipython<|end_header_id|>\n\n2<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
				{sampled, "<function=add>{\"a\": 1}</function><|eot_id|>"},
			},
			{{prompted, "<|start_header_id|>user<|end_header_id|>\n\nAdd.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"}, {sampled, "{\"name\": \"Ann\", \"age\": 5}<|eot_id|>"}},
			{{prompted, "<|start_header_id|>user<|end_header_id|>\n\nAdd.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"}, {sampled, "<|python_tag|>print(1)<|eom_id|>"}},
		},
	}},
	"Llama 4": {{
		spans: [][]spanText{{{prompted, "<|header_start|>user<|header_end|>\n\nAdd.<|eot|><|header_start|>assistant<|header_end|>\n\n"}, {sampled, "Yes.<|eot|>"}}},
	}},
	"gpt-oss": {{
		templates: []string{"openai-gpt-oss-120b.jinja"},
		spans: [][]spanText{
			{
				{prompted, "<|start|>system<|message|>Be brief.<|end|><|start|>user<|message|>Add.<|end|><|start|>assistant"},
				{sampled, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>"},
				{returned, "<|start|>functions.add to=assistant<|channel|>commentary<|message|>1<|end|><|start|>assistant"},
				{sampled, "<|channel|>final<|message|>Done.<|return|>"},
			},
			{{prompted, "<|start|>user<|message|>Add.<|end|><|start|>assistant"}, {sampled, "<|channel|>analysis<|message|>Hm, this is"}},
			{{prompted, "<|start|>user<|message|>Add.<|end|><|start|>assistant"}, {sampled, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|chan"}},
			{{prompted, "<|start|>user<|message|>Add.<|end|><|start|>assistant<|channel|>analysis<|message|>Old.<|end|><|start|>assistant<|channel|>commentary<|message|>I add.<|end|><|start|>assistant"}, {sampled, "Plain"}},
			{{prompted, "<|start|>user<|message|>Add.<|end|><|start|>assistant"}, {sampled, "<|channel|>commentary to=python<|message|>print(1)<|call|>"}},
		},
	}},
	"Mistral": {{
		special:   []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]", "[THINK]", "[/THINK]"},
		templates: []string{"cfg_mistral-nemo-tekken.jinja", "mistral-common_v7.jinja", "mistral-common_v13.jinja", "mistral-common_v15_think.jinja"},
		replace:   map[string]string{"<s_bos>": "<s>", "<s_eos>": "</s>"},
		spans: [][]spanText{
			{
				{prompted, "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Add.[/INST]"},
				{sampled, "[THINK]Hm.[/THINK]I add.[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]add[CALL_ID]x1[ARGS]{\"a\": 2}</s>"},
				{returned, "[TOOL_RESULTS]1[/TOOL_RESULTS][TOOL_RESULTS]2[/TOOL_RESULTS]"},
				{sampled, "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 3}, \"id\": \"abcdefghi\"}]</s>"},
				{returned, "[TOOL_RESULTS]{\"content\": 3, \"call_id\": \"abcdefghi\"}[/TOOL_RESULTS]"},
				{sampled, "Done.</s>"},
				{asked, "[INST]More.[/INST]"},
				{sampled, "[TOOL_CALLS]what"},
			},
		},
	}},
	"DeepSeek V3": {{
		special:   []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"},
		templates: []string{"cfg_deepseek-v3.jinja", "deepseek-ai-DeepSeek-V3.1.jinja", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek-ai-DeepSeek-V3.2.jinja"},
		replace:   map[string]string{"<s_bos>": "<｜begin▁of▁sentence｜>", "<s_eos>": "<｜end▁of▁sentence｜>"},
		spans: [][]spanText{
			{
				{prompted, "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Add.<｜Assistant｜><think>\n"},
				{sampled, "Hm.\n</think>\n\nI add.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"},
				{returned, "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>1<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"},
				{sampled, "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"},
				{returned, "<｜tool▁output▁begin｜>2<｜tool▁output▁end｜><｜tool▁output▁begin｜>3<｜tool▁output▁end｜>"},
				{sampled, "Done.<｜end▁of▁sentence｜>"},
			},
			{{prompted, "<｜begin▁of▁sentence｜><｜User｜>Add.<｜Assistant｜>"}, {sampled, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\""}},
		},
	}},
	"Kimi K2": {{
		special: []string{
			"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
		},
		templates: []string{"Kimi-K2-Instruct.jinja", "Kimi-K2-Thinking.jinja"},
		spans: [][]spanText{
			{
				{prompted, "<|im_user|>user<|im_middle|>Add.<|im_end|><|im_assistant|>assistant<|im_middle|>"},
				{sampled, "I add.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{\"a\": 2}<|tool_call_end|><|tool_calls_section_end|><|im_end|>"},
				{returned, "<|im_system|>add<|im_middle|>## Return of functions.add:0\n1<|im_end|><|im_system|>tool<|im_middle|>## Return of functions.add:1\n2<|im_end|><|im_assistant|>assistant<|im_middle|>"},
				{sampled, "Done.<|im_end|>"},
			},
		},
	}},
	"Phi 3": {{templates: []string{"microsoft-Phi-3.5-mini-instruct.jinja"}, replace: map[string]string{"<s_bos>": ""}}},
	"GLM 4": {
		{
			special:   []string{"[gMASK]", "<sop>"},
			templates: []string{"GLM-4.6.jinja", "zai-GLM-4.5.jinja"},
			spans: [][]spanText{
				{
					{prompted, "<|user|>\nAdd.<|assistant|>\n"},
					{sampled, "<think>Hm.</think>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>x y</arg_value>\n</tool_call><|observation|>"},
					{returned, "\n<tool_response>\n1\n</tool_response><|assistant|>\n"},
					{sampled, "<tool_call>add</tool_call>Done.<|user|>"},
				},
			},
		},
	},
	"Gemma 3": {{templates: []string{"google-gemma-2-2b-it.jinja"}, replace: map[string]string{"<s_bos>": ""}}},
	"Gemma 4": {{special: []string{"<|tool_call>", "<tool_call|>", `<|"|>`, "<|channel>", "<channel|>", "<|tool>", "<tool|>"}, templates: []string{"google-gemma-4-31B-it.jinja"}, replace: map[string]string{"<s_bos>": ""}}},
	"Command R": {{
		special:   []string{"<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
		templates: []string{"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "CohereForAI-c4ai-command-r-plus-tool_use.jinja"},
		replace:   map[string]string{"<s_bos>": ""},
	}},
	"Granite 3": {{
		special:   []string{"<|tool_call|>"},
		templates: []string{"ibm-granite-granite-3.3-2B-Instruct.jinja"},
		spans: [][]spanText{{
			{prompted, "<|start_of_role|>user<|end_of_role|>Add.<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"},
			{sampled, "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]<|end_of_text|>"},
		}},
	}},
	"Seed-OSS": {{special: []string{"<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"}, templates: []string{"ByteDance-Seed-OSS.jinja"}}},
}
