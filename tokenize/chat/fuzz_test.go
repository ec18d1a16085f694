package chat_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// fuzzOptions returns limits that keep one input to a few milliseconds.
func fuzzOptions() chat.Options {
	o := testOptions()
	o.MaxSteps, o.MaxValueBytes, o.MaxOutputBytes = 20_000, 4<<20, 1<<20
	return o
}

// FuzzParse: any source is a template or an *Error. A template renders or fails within its limits.
func FuzzParse(f *testing.F) {
	for _, src := range templates(f) {
		f.Add(src)
	}
	for _, h := range hostile {
		if len(h.src) < 4096 {
			f.Add(h.src)
		}
	}
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 1<<15 {
			return
		}
		start := time.Now()
		_, err := render("fuzz", src, fuzzOptions(), input(t, []byte(templateVars)))
		var e *chat.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("error %T, want *chat.Error", err)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// FuzzRender: every template renders or rejects any JSON, twice the same, and only appends to dst.
func FuzzRender(f *testing.F) {
	srcs := templates(f)
	var tpls []*chat.Template
	for _, name := range []string{"Qwen-Qwen3-0.6B.jinja", "openai-gpt-oss-120b.jinja", "mistral-common_v13.jinja", "meetkai-functionary-medium-v3.2.jinja", "Kimi-K2-Thinking.jinja"} {
		tpl := parse(f, name, srcs[name], fuzzOptions())
		tpls = append(tpls, tpl)
	}
	f.Add([]byte(agentLoop(6)), []byte(benchTools))
	f.Add([]byte(`[{"role": "user", "content": null}]`), []byte("null"))
	f.Add([]byte(`[{"role": "user", "content": [{"type": "text", "text": "x"}]}, 1, "x", {}]`), []byte("[{}]"))
	f.Fuzz(func(t *testing.T, messages, tools []byte) {
		m, err := chat.FromJSON(messages)
		if err != nil {
			return
		}
		ts, err := chat.FromJSON(tools)
		if err != nil {
			return
		}
		in := chat.Input{Messages: m, Tools: ts, AddGenerationPrompt: true, Now: fixedNow()}
		for _, tpl := range tpls {
			a, err1 := tpl.Render([]byte("before"), in)
			b, err2 := tpl.Render([]byte("before"), in)
			if (err1 == nil) != (err2 == nil) || string(a) != string(b) {
				t.Fatalf("%s: two renders differ: %v, %v", tpl.Name(), err1, err2)
			}
			if len(a) < 6 || string(a[:6]) != "before" || err1 != nil && len(a) != 6 {
				t.Fatalf("%s: dst was changed: %.20q, %v", tpl.Name(), a, err1)
			}
		}
	})
}
