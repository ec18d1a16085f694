package chat_test

import (
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

func Example() {
	tpl, err := chat.Parse("mine", `{% for m in messages %}
<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}

{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}`, chat.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := chat.FromJSON([]byte(`[
		{"role": "user", "content": "How warm is it?"},
		{"role": "assistant", "content": "", "tool_calls": [{"name": "weather", "arguments": {"days": 1, "scale": 1.0}}]}
	]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := tpl.Render(nil, chat.Input{Messages: messages, AddGenerationPrompt: true})
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// <|user|>How warm is it?
	// <|assistant|>[{"name": "weather", "arguments": {"days": 1, "scale": 1.0}}]
	// <|assistant|>
	// <nil>
}

func ExampleError() {
	tpl, err := chat.Parse("strict", "\n{{ raise_exception('roles must alternate') }}", chat.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = tpl.Render(nil, chat.Input{})
	fmt.Println(err)
	fmt.Println(errors.Is(err, chat.ErrRaised))
	// Output:
	// chat: strict:2: the template raised an exception: roles must alternate
	// true
}
