package prompttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

const (
	calls   = 8
	endID   = 151645 // <|im_end|>, which ends every output
	user    = "user-00000000-0000-4000-8000-000000000000"
	created = "2026-11-21T09:41:20+00:00"
	handle  = "sglang//models/qwen3"
	system  = "You are a careful engineer. Work in small steps, and write what you find into files."
)

// A life is a recording that is being generated.
type life struct {
	Model
	r           *rand.Rand
	name        string
	agent, run  string
	messageID   string // the id of the system message
	question    string
	steps       []string
	generations []generation
}

// A generation is one model call and the tool result after it.
type generation struct {
	prompt, output []int32
	logprobs       []float32
	text           string // the sampled text
	content        string // the sampled text without the tool call
	tool, callID   string
	args           string // the arguments as the model wrote them, with non-ASCII characters unescaped
	result         string
	asked          [][]byte // the messages of the prompt, as they appear in the trace
}

// Life returns a recording in the format of testdata/README.md. The same name and seed give the
// same recording.
func (m Model) Life(name string, seed uint64) ([]byte, error) {
	r := rand.New(rand.NewPCG(seed, 10))
	l := &life{Model: m, r: r, name: name}
	l.agent, l.run, l.messageID = l.id("agent"), l.id("run"), l.id("message")
	l.question = prose(r, 60) + " [case:" + name + "]"
	for range calls {
		l.steps = append(l.steps, l.id("step"))
	}
	if err := l.live(); err != nil {
		return nil, err
	}
	return l.recording(), nil
}

func (l *life) id(prefix string) string {
	a, b := l.r.Uint64(), l.r.Uint64()
	return fmt.Sprintf("%s-%08x-%04x-4%03x-8%03x-%012x", prefix, a>>32, a>>16&0xffff, a&0xfff, b>>48&0xfff, b&0xffffffffffff)
}

// live generates the prompt, text and ids of every call.
func (l *life) live() error {
	shown := [][]byte{
		[]byte(`{"content":` + quote(l.systemText()) + `,"role":"system"}`),
		[]byte(`{"content":` + quote(l.question) + `,"role":"user"}`),
	}
	for k := range calls {
		g := generation{content: "<think>\n" + prose(l.r, 120) + "\n</think>", asked: slices.Clone(shown)}
		if k == calls-1 {
			g.content += "\n\n" + prose(l.r, 90)
			g.text = g.content
		} else {
			if k%2 == 1 {
				g.content += "\n\n" + prose(l.r, 12)
			}
			g.tool, g.callID = "write_file", fmt.Sprintf("call_%08x", l.r.Uint32())
			g.args = fmt.Sprintf(`{"path": "src/%s_%d.py", "content": %s, "overwrite": %t}`, word(l.r), k, quote(source(l.r, 62)), k%3 == 0)
			gap := "\n\n"
			if k%2 == 1 {
				gap = "\n"
			}
			g.text = g.content + gap + "<tool_call>\n{\"name\": \"" + g.tool + "\", \"arguments\": " + g.args + "}\n</tool_call>"
			g.result = terminal(l.r, 26)
		}
		var err error
		if g.prompt, err = l.render(shown); err != nil {
			return fmt.Errorf("call %d: %w", k, err)
		}
		if g.output, err = l.Tokenizer.AppendTokens(nil, g.text); err != nil {
			return fmt.Errorf("call %d: %w", k, err)
		}
		g.output = append(g.output, endID)
		for range g.output {
			g.logprobs = append(g.logprobs, l.logprob())
		}
		if g.tool != "" {
			shown = append(shown,
				[]byte(`{"content":`+quote(g.content)+`,"role":"assistant","tool_calls":[{"id":"`+g.callID+`","type":"function","function":{"name":"`+g.tool+`","arguments":`+quote(g.stored())+`}}]}`),
				[]byte(`{"content":`+quote(g.returned())+`,"role":"tool","tool_call_id":"`+g.callID+`"}`))
		}
		l.generations = append(l.generations, g)
	}
	return nil
}

// render returns the ids of the prompt with these messages. Like the server's adapter, it parses
// the arguments of tool calls.
func (l *life) render(shown [][]byte) ([]int32, error) {
	list := make([]chat.Value, len(shown))
	for i, raw := range shown {
		var m struct {
			Role, Content string
			ToolCalls     []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, err
		}
		d := chat.NewMap(3)
		d.Set("role", chat.StringValue(m.Role))
		d.Set("content", chat.StringValue(m.Content))
		if len(m.ToolCalls) > 0 {
			args, err := chat.FromJSON([]byte(m.ToolCalls[0].Function.Arguments))
			if err != nil {
				return nil, err
			}
			f := chat.NewMap(2)
			f.Set("name", chat.StringValue(m.ToolCalls[0].Function.Name))
			f.Set("arguments", args)
			c := chat.NewMap(3)
			c.Set("id", chat.StringValue(m.ToolCalls[0].ID))
			c.Set("type", chat.StringValue("function"))
			c.Set("function", chat.MapValue(f))
			d.Set("tool_calls", chat.ListValue(chat.MapValue(c)))
		}
		list[i] = chat.MapValue(d)
	}
	tools, err := chat.FromJSON([]byte(`[{"type":"function","function":` + schema + `}]`))
	if err != nil {
		return nil, err
	}
	text, err := l.Template.Render(nil, chat.Input{Messages: chat.ListValue(list...), Tools: tools, AddGenerationPrompt: true})
	if err != nil {
		return nil, err
	}
	return l.Tokenizer.AppendTokens(nil, string(text))
}

// logprob returns a random log-probability. As in the recordings, some values are exactly 0 and
// many are close to 0.
func (l *life) logprob() float32 {
	switch u := l.r.Float64(); {
	case u < 0.06:
		return 0
	case u < 0.5:
		return -float32(math.Pow(10, -5+4*l.r.Float64()))
	default:
		return -float32(l.r.ExpFloat64())
	}
}

func (l *life) systemText() string {
	return system + "\n\n\n\n<memory_metadata>\n- AGENT_ID: " + l.agent + "\n- CONVERSATION_ID: default\n" +
		"- System prompt last recompiled: 2026-11-21 09:41:20 AM UTC+0000\n" +
		"- 0 previous messages between you and the user are stored in recall memory\n</memory_metadata>"
}

// stored returns the arguments as the server stores them, with non-ASCII characters escaped.
func (g *generation) stored() string {
	var b strings.Builder
	for _, c := range g.args {
		switch {
		case c < 0x80:
			b.WriteRune(c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			c -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		}
	}
	return b.String()
}

// returned returns the tool result as the model sees it.
func (g *generation) returned() string {
	return "{\n  \"status\": \"OK\",\n  \"message\": " + quote(g.result) + ",\n  \"time\": \"2026-11-21 09:41:24 AM UTC+0000\"\n}"
}

const schema = `{"name":"write_file","description":"Write a file and run the checks of its folder.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"where to"},"content":{"type":"string","description":"the whole file"},"overwrite":{"type":"boolean","description":"replace a file that is there"}},"required":["path","content"]}}`

// quote encodes s as a JSON string. Like the server, it does not escape non-ASCII characters and
// angle brackets.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // cannot fail, because it writes a string to a buffer
	return strings.TrimSuffix(b.String(), "\n")
}

func (g *generation) appendLogprobs(dst []byte) []byte {
	dst = append(dst, '[')
	for i, id := range g.output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendFloat(append(dst, '['), g.logprobs[i])
		dst = strconv.AppendInt(append(dst, ','), int64(id), 10)
		dst = append(dst, ",null]"...)
	}
	return append(dst, ']')
}

// appendFloat converts f to a double and appends the text that Python prints for the double.
func appendFloat(dst []byte, f float32) []byte {
	if f == 0 {
		return append(dst, "0.0"...)
	}
	return strconv.AppendFloat(dst, float64(f), 'g', -1, 64)
}
