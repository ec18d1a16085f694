package chat_test

// ruleApplications returns short templates, with conversations, for what stored ones do not cover.
func ruleApplications() []application {
	const (
		talk     = `[{"role": "user", "content": "Hi", "name": null}, {"role": "assistant", "content": " yes \n", "reasoning": "so"}]`
		blocks   = `[{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "image"}]}]`
		printAll = `{{ messages }}`
		lines    = `{% for m in messages %}{{ m.role ~ ': ' ~ m.content }}{{ '\n' }}{% endfor %}`
		trimmed  = `{% for m in messages %}[{{ m.content | trim }}]{% endfor %}`
	)
	render := func(src, messages string) application { return application{Src: src, Messages: messages} }
	onward := func(src, messages, field string) application {
		return application{Src: src, Messages: messages, ContinueFinalMessage: field}
	}
	asEnum := func(src string) application {
		return application{Src: src, Messages: `[{"role": "user", "content": "Hi"}, {"role": "odd"}, {"role": "tool"}]`, Enum: true}
	}
	return []application{
		// None is omitted from messages, but not from nested values. Reasoning has several names.
		render(printAll, talk),
		render(printAll, `[{"role": "user", "content": null, "x": {"y": null}, "z": [null]}]`),
		render(printAll, `[{"role": null}]`),
		render(printAll, `[{"thinking": null, "reasoning": "r", "role": "assistant"}]`),
		render(printAll, `[{"role": "assistant", "reasoning_content": null, "thinking": "t", "reasoning": "r"}]`),
		render(printAll, `[{"role": "assistant", "reasoning_content": "", "thinking": "t"}]`),
		render(printAll, `[{"role": "assistant", "thinking": "t", "reasoning_content": "c", "reasoning": ["r"]}]`),
		render(printAll, `[{"role": "assistant", "reasoning": {"a": [1, null]}, "content": "x"}]`),
		render(`{% for m in messages %}{% if m.thinking is defined %}{{ m.thinking == m.reasoning_content }}{% endif %}{{ m.content is defined }}{% endfor %}`,
			`[{"reasoning": ["r"], "content": null}, {"thinking": ["t"], "reasoning_content": ["t"]}]`),
		{
			Src: `{{ tools }}{{ documents }}{{ v }}{{ bos_token }}{{ nothing is defined }}`, Messages: talk, Tools: `[{"a": null, "b": [null]}]`,
			Documents: `[{"text": null}]`, Vars: `{"v": {"w": null}, "nothing": null}`,
		},
		render(`{% set ns = namespace(a=1) %}{% set ns.b_ = 2 %}{{ ns.a }}{{ ns.b_ }}`, talk),
		// Inputs that are not a conversation.
		render(printAll, `[]`), render(printAll, `["text"]`), render(printAll, `[{"role": "user"}, 1]`), render(printAll, `[[{"role": "user"}]]`),
		{Src: `{{ tools }}`, Messages: talk, Tools: `["x"]`},
		{Src: `{{ tools }}`, Messages: talk, Tools: `[]`},
		{Src: `{{ documents }}`, Messages: talk, Documents: `[{}, "x"]`},
		{Src: `{{ documents }}`, Messages: talk, Documents: `[]`},
		// Roles that are enum members.
		asEnum(lines), asEnum(`{{ messages }}`), asEnum(`{% for m in messages %}{{ m.role }}{{ m.role + '!' }}{{ '<' + m['role'] }}{% endfor %}`),
		asEnum(`{% for m in messages %}{{ m.role | upper }}{{ m.role | string }}{{ m.role | trim }}{{ m.role | length }}{{ m.role | capitalize }}{{ m.role | replace('u', 'v') }}{{ m.role | title }}{% endfor %}`),
		asEnum(`{% for m in messages %}{{ m.role.upper() }}{{ m.role.strip() }}{{ m.role.replace('zz', '') }}{{ m.role.split('s') }}{{ m.role[:] }}{{ m.role * 1 }}{{ m.role.startswith('u') }}{% endfor %}`),
		asEnum(`{% for m in messages %}{{ m.role | tojson }}{{ m | tojson }}{% endfor %}`),
		asEnum(`{{ messages | map(attribute='role') | join(',') }}{{ ','.join(messages | map(attribute='role')) }}{{ messages | map(attribute='role') | list }}`),
		asEnum(`{% for m in messages %}{{ m.role == 'user' }}{{ m.role in ['tool'] }}{{ {'user': 1, 'tool': 2}[m.role] }}{{ m.role is string }}{{ m.role is mapping }}{% endfor %}`),
		asEnum(`{% for m in messages %}{{ m.role | safe }}{{ ('<' | safe) + m.role }}{{ m.role + ('<' | safe) }}{% endfor %}`),
		asEnum(`{% for m in messages %}{{ m.role.value }}{{ m.role.name }}{{ m.role['value'] }}{{ m.role | default('x') }}{{ m.role or 'x' }}{% set r = m.role %}{{ r ~ r }}{% endfor %}`),
		asEnum(`{{ messages | map(attribute='role') | unique | join }}{{ messages | map(attribute='role') | sort }}`),
		asEnum(`{% for m in messages %}{{ m.role | indent }}{{ m.role | first }}{{ m.role | list }}{% endfor %}`),
		asEnum(`{% macro f(r) %}{{ r }}{% endmacro %}{% for m in messages %}{{ f(m.role) }}{% set ns = namespace(r=m.role) %}{{ ns.r }}{{ (m.role, 1) }}{{ [m.role] }}{{ {m.role: m.role} }}{% set x %}{{ m.role }}{% endset %}{{ x }}{% endfor %}`),
		// A continued final message.
		onward(lines, talk, "content"), onward(trimmed, talk, "content"), onward(lines, `[{"role": "user", "content": "Hi"}]`, "content"),
		onward(lines+`{{ eos_token }}`, `[{"role": "user", "content": "Hi "}]`, "content"),
		onward(trimmed, `[{"role": "user", "content": "  \n"}]`, "content"), onward(trimmed, `[{"role": "user", "content": ""}]`, "content"),
		onward(`{% for m in messages %}a \n {{ m.content | trim }} {% endfor %}`, `[{"content": " "}]`, "content"),
		onward(lines, `[{"role": "user", "content": null}]`, "content"), onward(lines, `[{"role": "user"}]`, "content"), onward(lines, `[{"content": 1}]`, "content"),
		onward(lines, `[{"content": {"text": "x"}}]`, "content"), onward(lines, `[{"content": true}]`, "content"),
		onward(printAll, `[{"name": "n"}]`, "name"), onward(lines, `[]`, "content"), onward(lines, `["x"]`, "content"),
		onward(`{{ messages[0].content }}`, talk, "content"), onward(`{{ messages[1].content | upper }}`, talk, "content"),
		onward(`no field`, talk, "content"), onward(`content`, talk, "content"),
		onward(`{{ messages[1].content }}-{{ messages[1].content }}`, talk, "content"),
		onward(lines, `[{"role": "user", "content": "CONTINUE_FINAL_MESSAGE_TAG x CONTINUE_FINAL_MESSAGE_TAG "}]`, "content"),
		onward(printAll+`{# content #}`, blocks, "content"), onward(printAll+`{# content #}`, `[{"content": []}]`, "content"),
		onward(printAll+`{# content #}`, `[{"content": [{"text": 1}]}]`, "content"), onward(printAll+`{# content #}`, `[{"content": [{"text": "a"}, "text"]}]`, "content"),
		onward(printAll+`{# content #}`, `[{"content": [{"text": "a"}, "x"]}]`, "content"), onward(printAll+`{# content #}`, `[{"content": [{"text": "a"}, null]}]`, "content"),
		onward(printAll+`{# content #}`, `[{"content": [{"text": "a"}, {"text": "b", "type": "text"}, {"type": "image"}]}]`, "content"),
		onward(`{{ messages[0].reasoning_content }}|{{ messages[0].content }}`, `[{"reasoning_content": "r", "content": "c"}]`, "reasoning_content"),
		onward(`{{ messages[0].reasoning_content }}|`, `[{"reasoning": "r", "content": "c"}]`, "reasoning"),
		onward(`{{ messages[0].thinking }}|`, `[{"reasoning": "r", "content": "c"}]`, "reasoning"),
		onward(`{{ messages[0].thinking }}|`, `[{"reasoning": "r", "thinking": "r"}]`, "thinking"),
		onward(`{{ messages[0].thinking }}|`, `[{"reasoning": "r", "thinking": "t"}]`, "reasoning"),
		onward(`{{ messages[0].reasoning }}|{{ messages[0].thinking }}|`, `[{"reasoning": [{"text": "r"}], "thinking": [{"text": "r"}]}]`, "reasoning"),
		onward(`{{ messages[0].reasoning_content }}|`, `[{"reasoning": [{"text": "r"}]}]`, "reasoning"),
		onward(`{{ messages[0].name }}|`, `[{"name": "n "}]`, "name"), onward(`{{ messages[0].name }}|`, `[{"content": "n "}]`, "name"),
		{Src: lines, Messages: talk, ContinueFinalMessage: "content", AddGenerationPrompt: true},
		{Src: lines + `{{ continue_final_message is defined }}{{ add_generation_prompt }}`, Messages: talk},
	}
}
