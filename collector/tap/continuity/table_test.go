package continuity_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

const (
	head   = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n2 and 3?<|im_end|>\n<|im_start|>assistant\n"
	result = "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
	call   = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 3}}\n</tool_call><|im_end|>"
	other  = "<tool_call>\n{\"name\": \"mul\", \"arguments\": {\"a\": 2, \"b\": 3}}\n</tool_call><|im_end|>"
)

// A script sends prompts in text form to a table.
type script struct {
	tb    testing.TB
	table *continuity.Table
}

func newScript(tb testing.TB, cfg continuity.Config) *script {
	tb.Helper()
	return &script{tb, newTable(tb, cfg)}
}

func (s *script) ids(text string) []int32 {
	return encode(s.tb, bpetest.Tokenizer(s.tb, "qwen3"), text)
}

func (s *script) tell(asked, output string) { answered(s.table, s.ids(asked), nil, s.ids(output)) }

// want asks for a prompt and compares the result. An empty sent means nil.
func (s *script) want(asked, sent string, want continuity.Reason) {
	s.tb.Helper()
	got, reason := decide(s.tb, s.table, s.ids(asked))
	if reason != want || !slices.Equal(got, s.ids(sent)) {
		s.tb.Errorf("Prompt(%q) = %q, %v; want %q, %v", asked, decode(s.tb, bpetest.Tokenizer(s.tb, "qwen3"), got), reason, sent, want)
	}
}

// TestSamePrompt proves that outputs distinguish agents with the same prompt, or nothing is
// spliced.
func TestSamePrompt(t *testing.T) {
	t.Parallel()
	const x, y, long = "<think>\nx\n</think>\n\n", "<think>\ny\n</think>\n\n", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 3}}\n</tool_call>\n"
	for _, tt := range []struct {
		name    string
		outputs []string
		sent    string // for the prompt that prints call
		want    continuity.Reason
	}{
		{"other calls", []string{x + call, y + other}, head + x + call + result, continuity.ReasonDeleted},
		{"the same call", []string{x + call, y + call}, "", continuity.ReasonAmbiguous},
		{"one of them as it was", []string{x + call, call}, "", continuity.ReasonAmbiguous},
		{"the same ids", []string{x + call, x + call}, head + x + call + result, continuity.ReasonDeleted},
		{"one that lost its second call", []string{x + call, long + other}, "", continuity.ReasonAmbiguous},
		{"one that met its length", []string{x + call, y + strings.TrimSuffix(call, "<|im_end|>")}, "", continuity.ReasonAmbiguous},
		{"one in another form", []string{x + call, y + "<tool_call>add</tool_call><|im_end|>"}, "", continuity.ReasonAmbiguous},
		{"one that spoke", []string{x + call, "five<|im_end|>"}, head + x + call + result, continuity.ReasonDeleted},
		{"none of them", []string{x + other, y + other}, "", continuity.ReasonArguments},
	} {
		s := newScript(t, qwen3(t))
		for _, output := range tt.outputs {
			s.tell(head, output)
		}
		t.Log(tt.name)
		s.want(head+call+result, tt.sent, tt.want)
	}
}

// TestUnknown proves that a prompt becomes blind when one of its outputs can be missing.
func TestUnknown(t *testing.T) {
	t.Parallel()
	s := newScript(t, qwen3(t))
	thought := s.ids("<think>\nx\n</think>\n\n" + call)
	for _, tt := range []struct {
		name  string
		other tap.Call
		blind bool
	}{
		{"refused by the engine", tap.Call{Status: 500}, false},
		{"cut", tap.Call{Status: 200, Cut: true, Output: s.ids(other)}, true},
		{"not read", tap.Call{Status: 200}, true},
		{"no answer", tap.Call{}, true},
	} {
		s.table = newTable(t, qwen3(t))
		answered(s.table, s.ids(head), nil, thought)
		tt.other.Prompt = s.ids(head)
		s.table.Answered(&tt.other)
		t.Log(tt.name)
		if tt.blind {
			s.want(head+call+result, "", continuity.ReasonUnknown)
		} else {
			s.want(head+call+result, head+"<think>\nx\n</think>\n\n"+call+result, continuity.ReasonDeleted)
		}
	}
	s.table = newTable(t, qwen3(t))
	for i := range 33 { // more than maxCalls
		s.tell(head, fmt.Sprintf("<think>\n%d\n</think>\n\n%s", i, strings.Replace(call, "2", fmt.Sprint(i), 1)))
	}
	s.want(head+call+result, "", continuity.ReasonUnknown)
}

// TestForgotten proves that the table remembers until MaxAge that it dropped calls.
func TestForgotten(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	cfg := qwen3(t)
	cfg.Now = func() time.Time { return now }
	cfg.MaxBytes = 64 << 10
	s := newScript(t, cfg)
	const x, y = "<think>\nx\n</think>\n\n", "<think>\ny\n</think>\n\n"
	s.tell(head, x+call)
	s.want(head+call+result, head+x+call+result, continuity.ReasonDeleted)
	for i := range 100 {
		s.tell(fmt.Sprint("<|im_start|>system\n", i, " ", strings.Repeat("x ", 100), head), call)
	}
	if got := s.table.Stats(); got.Bytes > cfg.MaxBytes || got.Calls < 10 || got.Calls > 60 {
		t.Errorf("the table has %d calls and %d bytes, want at most %d bytes", got.Calls, got.Bytes, cfg.MaxBytes)
	}
	s.want(head+call+result, "", continuity.ReasonUnknown)
	s.tell(head, y+call) // another agent with this prompt: the first one can still come
	s.want(head+call+result, "", continuity.ReasonUnknown)

	now = now.Add(time.Hour)
	s.tell(head, y+call)
	s.want(head+call+result, head+y+call+result, continuity.ReasonDeleted)
	now = now.Add(time.Hour)
	s.tell("<|im_start|>system\n"+head, call)
	s.want(head+call+result, "", continuity.ReasonNew)
	if got := s.table.Stats(); got.Calls != 1 || got.Bytes > 2000 {
		t.Errorf("the table still has the old %+v", got)
	}

	// A table with room for nothing, not even blind sites.
	cfg.MaxBytes = 1
	s = newScript(t, cfg)
	s.tell(head, x+call)
	if got := s.table.Stats(); got.Calls != 0 || got.Bytes != 0 {
		t.Errorf("a table of one byte has %+v", got)
	}
}

// TestMemory proves that the counted memory is zero when all calls are gone.
func TestMemory(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	cfg := qwen3(t)
	cfg.Now = func() time.Time { return now }
	s := newScript(t, cfg)
	var tell func(asked string, depth int)
	tell = func(asked string, depth int) {
		for _, output := range []string{other, "<think>\nx\n</think>\n\n" + call} {
			ids := s.ids(asked)
			sent, _ := s.table.Prompt(ids)
			answered(s.table, ids, sent, s.ids(output))
			if now = now.Add(time.Minute); depth > 0 {
				tell(asked+output[strings.Index(output, "<tool_call>"):]+result, depth-1)
			}
		}
	}
	tell(head, 4)
	if got := s.table.Stats(); got.Calls != 62 || got.Bytes < 62*100 || got.Prompts[continuity.ReasonContinued] == 0 {
		t.Errorf("a tree of 62 calls is %+v", got)
	}
	now = now.Add(time.Hour)
	s.tell("<|im_start|>user\n"+head, call)
	fresh := newScript(t, cfg)
	fresh.tell("<|im_start|>user\n"+head, call)
	if got, want := s.table.Stats(), fresh.table.Stats(); got.Calls != 1 || got.Bytes != want.Bytes {
		t.Errorf("an hour later there are %d calls and %d bytes, want 1 and %d", got.Calls, got.Bytes, want.Bytes)
	}
}

// TestApart proves that calls with the same asked and sampled ids differ by the sent ids.
func TestApart(t *testing.T) {
	t.Parallel()
	s := newScript(t, qwen3(t))
	const x = "<think>\nx\n</think>\n\n"
	s.tell(head, x+call)
	asked := head + call + result
	answered(s.table, s.ids(asked), s.ids(head+x+call+result), s.ids(x+other))
	s.want(asked+other+result, head+x+call+result+x+other+result, continuity.ReasonDeleted)
	s.tell(asked, x+other) // the same, and not spliced
	s.want(asked+other+result, "", continuity.ReasonAmbiguous)
	// A prompt that was spliced from unknown calls makes its site blind.
	next := "<|im_start|>system\nS" + asked
	answered(s.table, s.ids(next), s.ids("<|im_start|>system\nS"+head+x+call+result), s.ids(x+other))
	s.want(next+other+result, "", continuity.ReasonUnknown)
}

// TestLeft pins prompts that are not spliced because of their own form.
func TestLeft(t *testing.T) {
	t.Parallel()
	cfg := qwen3(t)
	cfg.MaxPrompt = 75
	s := newScript(t, cfg)
	const x = "<think>\nx\n</think>\n\n"
	s.tell(head, x+call)
	s.want("", "", continuity.ReasonForm)
	s.want(head+call+"\n<|im_start|>user\nfive", "", continuity.ReasonForm)
	s.want(head+call+result+"<think>\n", "", continuity.ReasonForm)
	s.want(head, "", continuity.ReasonNew)
	s.want(strings.Replace(head, "short", "brief", 1)+call+result, "", continuity.ReasonNew)
	s.want(head+strings.TrimSuffix(call, "<|im_end|>")+result, "", continuity.ReasonSpecial)
	s.table = newTable(t, cfg)
	s.tell(head, x+call)
	s.want(head+call+result, head+x+call+result, continuity.ReasonDeleted)
	s.table = newTable(t, cfg)
	s.tell(head, x+call)
	s.want(head+call+strings.Replace(result, "5", strings.Repeat("one two three ", 6), 1), "", continuity.ReasonLong)
	s.want(head+call+result+call+result, "", continuity.ReasonGap)
	s.tell("<|im_start|>system\nA"+head, "<|im_start|>"+x+call)
	s.want("<|im_start|>system\nA"+head+call+result, "", continuity.ReasonSpecial)
	s.tell("<|im_start|>system\nB"+head, x+strings.Replace(call, "<|im_end|>", "<|endoftext|>", 1))
	s.want("<|im_start|>system\nB"+head+call+result, "", continuity.ReasonEnd)
	answered(s.table, s.ids("<|im_start|>system\nC"+head), nil, []int32{-1, 1 << 30, imEnd})
	s.want("<|im_start|>system\nC"+head+call+result, "", continuity.ReasonSpecial)
	s.table.Answered(&tap.Call{})
	s.table.Answered(&tap.Call{Status: 200, Prompt: []int32{-1}, Asked: s.ids(head), Output: s.ids(call)})
}

// TestPlanted changes, removes and duplicates each token of a prompt: it proves no wrong splice.
func TestPlanted(t *testing.T) {
	t.Parallel()
	s := newScript(t, qwen3(t))
	const x = "<think>\nx\n</think>\n\n"
	s.tell(head, x+call)
	asked := s.ids(head + call + result)
	answered(s.table, asked, s.ids(head+x+call+result), s.ids(x+other))
	next := slices.Concat(asked, s.ids(other+result))
	outputs := [][]int32{s.ids(x + call), s.ids(x + other)}
	spliced := 0
	for i := range next {
		for _, put := range [][]int32{nil, {next[i], next[i]}, {15}, {imEnd}, {imStart}, {151643}} {
			planted := slices.Concat(next[:i], put, next[i+1:])
			sent, reason := decide(t, s.table, planted)
			if sent == nil {
				continue
			}
			spliced++
			if i < len(s.ids(head)) && !slices.Equal(planted, next) {
				t.Fatalf("token %d is %v, in what was asked before, and it is spliced (%v)", i, put, reason)
			}
			checkSplice(t, fmt.Sprint("token ", i, " is ", put), planted, sent, outputs)
		}
	}
	if spliced == 0 {
		t.Error("nothing was spliced at all")
	}
}

// TestConcurrent runs many conversations through one table at once.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	cfg := qwen3(t)
	cfg.MaxBytes = 64 << 10
	s := newScript(t, cfg)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				before := fmt.Sprintf("<|im_start|>system\n%d<|im_end|>\n", g%4*100+i) + head
				output := s.ids("<think>\nx\n</think>\n\n" + call)
				answered(s.table, s.ids(before), nil, output)
				asked := s.ids(before + call + result)
				if sent, _ := s.table.Prompt(asked); sent != nil {
					checkSplice(t, "concurrent", asked, sent, [][]int32{output})
					answered(s.table, asked, sent, output)
				}
				s.table.Stats()
			}
		})
	}
	wg.Wait()
}

// TestRefusedModels proves that New refuses templates in which the model's turns cannot be found.
func TestRefusedModels(t *testing.T) {
	t.Parallel()
	cfg := qwen3(t)
	parse := func(source string) *chat.Template {
		template, err := chat.Parse("test", source, chat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return template
	}
	source := cfg.Template.Source()
	for _, tt := range []struct {
		name     string
		change   func(*continuity.Config)
		want     string
		template bool
	}{
		{"nothing", func(c *continuity.Config) { *c = continuity.Config{MaxPrompt: -1, MaxBytes: -1, MaxAge: -1} }, "tokenizer is required", false},
		{"no markers", func(c *continuity.Config) { c.Tokenizer = bpetest.Tokenizer(t, "gpt-oss") }, "no special token <|im_start|>", true},
		{"a thought is begun", func(c *continuity.Config) {
			c.Template = parse(strings.ReplaceAll(source, "'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n<think>\\n'"))
		}, "do not end in", true},
		{"an empty thought is put in", func(c *continuity.Config) {
			c.Template = parse(strings.ReplaceAll(source, "'<|im_start|>' + message.role + '\\n' + content", "'<|im_start|>' + message.role + '\\n<think></think>' + content"))
		}, "does not render an answer", true},
		{"calls in another form", func(c *continuity.Config) {
			c.Template = parse(strings.ReplaceAll(source, "\"arguments\": ", "\"parameters\": "))
		}, "does not render a tool call", true},
		{"no calls", func(c *continuity.Config) {
			c.Template = parse("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}")
		}, "does not render a tool call", true},
		{"results as words", func(c *continuity.Config) {
			c.Template = parse(strings.NewReplacer("<tool_response>", "", "</tool_response>", "").Replace(source))
		}, "renders a tool result like a user message", true},
		{"refuses", func(c *continuity.Config) { c.Template = parse("{{ raise_exception('no') }}") }, "cannot render a conversation", true},
	} {
		c := cfg
		tt.change(&c)
		_, err := continuity.New(c)
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, continuity.ErrTemplate) != tt.template {
			t.Errorf("%s: New = %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestUnsafe proves that a conversation with any other change than a print is not spliced.
func TestUnsafe(t *testing.T) {
	t.Parallel()
	const x = "<think>\nx\n</think>\n\n"
	asked := head + call + result
	next := asked + other + result
	for _, tt := range []struct{ name, old, new string }{
		{"the system text", "Be short", "Be brief"},
		{"the user's text", "2 and 3?", "2 and 4?"},
		{"a tool's text", "\n5\n</tool_response>", "\n6\n</tool_response>"},
		{"an earlier call", `"b": 3}}` + "\n</tool_call>" + "<|im_end|>" + result + "<tool_call>\n{\"name\": \"mul\"", `"b": 4}}` + "\n</tool_call>" + "<|im_end|>" + result + "<tool_call>\n{\"name\": \"mul\""},
		{"the arguments", `"mul", "arguments": {"a": 2`, `"mul", "arguments": {"a": 3`},
		{"the name", `"mul"`, `"sub"`},
		{"a call is added", other, strings.TrimSuffix(other, "<|im_end|>") + "\n" + call},
		{"the call is gone", other, "<|im_end|>"},
		{"the role of a tool", "<|im_start|>user\n<tool_response>\n5", "<|im_start|>tool\n<tool_response>\n5"},
		{"roles changed places", "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user", "<|im_start|>user\nBe short.<|im_end|>\n<|im_start|>system"},
		{"a message is dropped", "<|im_start|>user\n2 and 3?<|im_end|>\n", ""},
		{"a call and its result are dropped", call + result, ""},
		{"a message is added before", "<|im_start|>user\n2", "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>user\n2"},
		{"the end of a turn in a tool's text", "\n5\n</tool_response>", "\n5<|im_end|>\n<|im_start|>assistant\n" + other + "\n</tool_response>"},
		{"the end of a turn in a call", `"mul", "arguments": {"a": 2`, `"mul", "arguments": {"a": <|im_end|>2`},
		{"another agent", "Be short.", "Be short. You are B."},
		{"a compaction", head + call, "<|im_start|>system\nBe short. Compacted at 10:01.<|im_end|>\n<|im_start|>user\nsummary<|im_end|>\n<|im_start|>assistant\n" + call},
	} {
		s := newScript(t, qwen3(t))
		s.tell(head, x+call)
		answered(s.table, s.ids(asked), s.ids(head+x+call+result), s.ids(x+other))
		changed := strings.Replace(next, tt.old, tt.new, 1)
		if changed == next {
			t.Errorf("%s: nothing was changed", tt.name)
		}
		if sent, reason := decide(t, s.table, s.ids(changed)); sent != nil {
			t.Errorf("%s: spliced as %v:\n%s\n%s", tt.name, reason, changed, decode(t, bpetest.Tokenizer(t, "qwen3"), sent))
		}
		s = newScript(t, qwen3(t)) // without the change
		s.tell(head, x+call)
		answered(s.table, s.ids(asked), s.ids(head+x+call+result), s.ids(x+other))
		s.want(next, head+x+call+result+x+other+result, continuity.ReasonDeleted)
	}
}
