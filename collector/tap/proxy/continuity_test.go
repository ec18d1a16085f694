package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize"
)

var smallModel = sync.OnceValues(func() (cfg enginesim.Config, err error) {
	cfg.Tokenizer, cfg.Template, err = enginesim.SmallModel()
	return cfg, err
})

func newSmallEngine(tb testing.TB, d enginesim.Dialect) *enginesim.Engine {
	tb.Helper()
	cfg, err := smallModel()
	if err != nil {
		tb.Fatal(err)
	}
	cfg.MaxModelLen, cfg.Dialect, cfg.Reasoning = 100_000, d, true
	e, err := enginesim.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// A retelling is how a client writes an answer in its next request.
type retelling struct {
	javascript bool   // arguments as JSON.stringify prints them, otherwise as json.dumps does
	ascii      bool   // characters outside ASCII are escaped
	order      string // of members: "", sorted or reversed
	trim       bool   // white space at the ends of texts is lost
	reasoning  string // "", dropped, renamed or both
	content    string // "", null (if empty) or parts
	verbatim   bool   // arguments keep their bytes
}

func (r *retelling) message(m *chatMessage) string {
	text := func(s string) string {
		if r.trim {
			s = strings.TrimSpace(s)
		}
		b, _ := json.Marshal(s)
		return string(b)
	}
	content := text(m.Content)
	switch {
	case r.content == "null" && content == `""`:
		content = "null"
	case r.content == "parts":
		content = `[{"type":"text","text":` + content + `}]`
	}
	out := `{"role": "assistant", "content": ` + content
	if thought := m.Reasoning + m.ReasoningContent; thought != "" && r.reasoning != "dropped" {
		names := []string{"reasoning_content", "reasoning"}
		if m.Reasoning != "" {
			slices.Reverse(names)
		}
		switch r.reasoning {
		case "":
			names = names[:1]
		case "renamed":
			names = names[1:]
		}
		for _, name := range names {
			out += fmt.Sprintf(`, %q: %s`, name, text(thought))
		}
	}
	for i, c := range m.ToolCalls {
		arguments := c.Function.Arguments
		if !r.verbatim {
			d := json.NewDecoder(strings.NewReader(arguments))
			d.UseNumber()
			arguments = r.value(d)
		}
		if r.ascii {
			arguments = ascii(arguments)
		}
		quoted, _ := json.Marshal(arguments)
		out += []string{`, "tool_calls": [`, `, `}[min(i, 1)] + fmt.Sprintf(`{"id": %q, "type": "function", "function": {"name": %q, "arguments": %s}}`, c.ID, c.Function.Name, quoted)
	}
	if len(m.ToolCalls) > 0 {
		out += "]"
	}
	return out + "}"
}

// value prints the next value.
func (r *retelling) value(d *json.Decoder) string {
	token, err := d.Token()
	if err != nil {
		panic(err)
	}
	comma, colon := ", ", ": "
	if r.javascript {
		comma, colon = ",", ":"
	}
	switch v := token.(type) {
	case json.Delim:
		var parts []string
		for d.More() {
			part := r.value(d)
			if v == '{' {
				part += colon + r.value(d)
			}
			parts = append(parts, part)
		}
		_, _ = d.Token()
		switch {
		case v == '{' && r.order == "sorted":
			slices.Sort(parts)
		case v == '{' && r.order == "reversed":
			slices.Reverse(parts)
		}
		return string(rune(v)) + strings.Join(parts, comma) + string(rune(v+2))
	case json.Number:
		if f, err := v.Float64(); err == nil && r.javascript {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return v.String()
	case nil:
		return "null"
	default:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v)
		return strings.TrimSuffix(b.String(), "\n")
	}
}

// ascii escapes all characters outside ASCII.
func ascii(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c < 0x80 {
			b.WriteRune(c)
			continue
		}
		for _, unit := range utf16.Encode([]rune{c}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

type chatMessage struct {
	Content, Reasoning string
	ReasoningContent   string `json:"reasoning_content"`
	ToolCalls          []struct {
		Index    int
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// readMessage reads the message in an answer, or in a stream.
func readMessage(tb testing.TB, text string) *chatMessage {
	tb.Helper()
	type choices struct {
		Choices []struct{ Message, Delta chatMessage }
	}
	if !strings.HasPrefix(text, "data:") {
		var whole choices
		if err := json.Unmarshal([]byte(text), &whole); err != nil || len(whole.Choices) != 1 {
			tb.Fatalf("%v: %s", err, text)
		}
		return &whole.Choices[0].Message
	}
	var m chatMessage
	for line := range strings.Lines(text) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: {")
		if !ok {
			continue
		}
		var part choices
		if err := json.Unmarshal([]byte("{"+data), &part); err != nil {
			tb.Fatalf("%v: %s", err, data)
		}
		for _, c := range part.Choices {
			m.Content += c.Delta.Content
			m.Reasoning += c.Delta.Reasoning
			m.ReasoningContent += c.Delta.ReasoningContent
			for _, call := range c.Delta.ToolCalls {
				if call.Index == len(m.ToolCalls) {
					m.ToolCalls = append(m.ToolCalls, call)
				} else {
					m.ToolCalls[call.Index].Function.Arguments += call.Function.Arguments
				}
			}
		}
	}
	return &m
}

// arguments are values that the engine samples as an argument, besides a command.
var arguments = []string{
	`{"b": 1, "a": [1, 2.5, {"z": null, "y": true}], "text": "naïve \"日本語\" 🎉 \\ /"}`,
	`{"rate": 0.1, "n": 3, "list": [[], {}, ""], "more": {"zeta": 1, "alpha": {"k": -7}}}`,
	`{"whole": 1.0, "big": 9007199254740992, "minus": -2.5}`,
	`"%d \t \u0001 <b>&amp;</b>"`,
	`[]`,
}

// A conversation is a harness of one session: it calls tools until an answer calls none.
type conversation struct {
	tools    string
	messages []string
	stream   bool
	retell   retelling
}

func newConversation(task, argument string) *conversation {
	return &conversation{
		tools: `[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"},` +
			`"extra":{"const":` + argument + `}},"required":["extra","command"]}}}]`,
		messages: []string{`{"role":"system","content":"You are an agent."}`, `{"role":"user","content":"Say hello. ` + task + `"}`},
	}
}

func (c *conversation) run(tb testing.TB, r *sessionRig, key session.Key) {
	tb.Helper()
	for range 20 {
		body := fmt.Sprintf(`{"model":"policy","messages":[%s],"tools":%s,"stream":%v}`, strings.Join(c.messages, ","), c.tools, c.stream)
		status, text := r.call(tb, key, body)
		if status != http.StatusOK {
			tb.Fatalf("%d %s", status, text)
		}
		m := readMessage(tb, text)
		c.messages = append(c.messages, c.retell.message(m))
		if len(m.ToolCalls) == 0 {
			return
		}
		for _, call := range m.ToolCalls {
			c.messages = append(c.messages, fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"ok"}`, call.ID))
		}
	}
	tb.Fatal("the conversation does not end")
}

// rowsOf returns the rows of a session.
func rowsOf(tb testing.TB, rec *session.Record) (rows []tokenize.Row, spliced int) {
	tb.Helper()
	out, err := session.Build(rec, session.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	rows, al, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(out.Calls)
	if err != nil || al.Trained != out.Tally.Sampled {
		tb.Fatalf("%v: %+v of %+v", err, al, out.Tally)
	}
	for _, c := range out.Calls {
		if c.Flags&tokenize.FlagSpliced != 0 {
			spliced++
		}
	}
	return rows, spliced
}

// TestContinuityRows proves that a session has one row with continuity if the client only writes the
// answers in another form, and that the rows contain the ids that the engine received and sampled.
func TestContinuityRows(t *testing.T) {
	t.Parallel()
	dialects := []enginesim.Dialect{enginesim.DialectVLLM, enginesim.DialectSGLang, enginesim.DialectSGLangPlain}
	pick := func(draw *rand.Rand, from ...string) string { return from[draw.IntN(len(from))] }
	split, changed := 0, 0
	for _, d := range dialects {
		engines := []*enginesim.Engine{newSmallEngine(t, d), newSmallEngine(t, d)}
		rigs := []*sessionRig{newSessionRig(t, proxy.Config{}, engines[0]), newSessionRig(t, proxy.Config{Continuity: true}, engines[1])}
		for seed := range uint64(24) {
			draw := rand.New(rand.NewPCG(seed, 32))
			task := fmt.Sprintf("[script:harness seed=%d calls=%d%s%s%s]", seed+1, 1+draw.IntN(4), pick(draw, "", " think"), pick(draw, "", " unicode"), pick(draw, "", " parallel"))
			retell := retelling{
				javascript: draw.IntN(2) == 0, ascii: draw.IntN(2) == 0, trim: draw.IntN(2) == 0, order: pick(draw, "", "sorted", "reversed"),
				reasoning: pick(draw, "", "dropped", "renamed", "both"), content: pick(draw, "", "null", "parts"),
			}
			argument, stream := arguments[draw.IntN(len(arguments))], draw.IntN(2) == 0
			if seed == 0 {
				retell = retelling{verbatim: true}
			}
			for i, r := range rigs {
				key := r.begin(t)
				calls := len(engines[i].Calls())
				c := newConversation(task, argument)
				c.retell, c.stream = retell, stream
				c.run(t, r, key)
				rec := r.record(t, key)
				rows, spliced := rowsOf(t, rec)
				switch {
				case i == 1 && len(rows) != 1, seed == 0 && len(rows) != 1:
					t.Errorf("%v, %s, %+v, continuity %v: %d rows", d, task, retell, i == 1, len(rows))
				case i == 0 && spliced > 0, seed == 0 && spliced > 0:
					t.Errorf("%v, %s, %+v, continuity %v: %d calls were spliced", d, task, retell, i == 1, spliced)
				}
				split += len(rows) - 1
				changed += spliced
				truth := engines[i].Calls()[calls:]
				if calls == 0 {
					truth = truth[len(truth)-len(rec.Calls):] // without the trials
				}
				if len(truth) != len(rec.Calls) {
					t.Fatalf("%d calls were recorded, the engine had %d", len(rec.Calls), len(truth))
				}
				for k, call := range rec.Calls {
					if !slices.Equal(call.Prompt, truth[k].InputIDs) || !slices.Equal(call.Output, truth[k].OutputIDs) {
						t.Errorf("%v, %s: call %d has other ids than the engine", d, task, k)
					}
					for p, at := range call.Messages {
						if string(rec.Texts[at]) != c.messages[p] {
							t.Errorf("%v, %s: call %d: message %d is recorded as %s, the client sent %s", d, task, k, p, rec.Texts[at], c.messages[p])
						}
					}
				}
			}
		}
		if s := rigs[1].proxy.Stats(); s.Continued == 0 || s.ContinuityBytes != 0 {
			t.Errorf("%d calls continued, %d bytes remain", s.Continued, s.ContinuityBytes)
		}
	}
	t.Logf("%d further rows without continuity; %d calls spliced with it", split, changed)
	if split < 30 || changed < 100 {
		t.Errorf("the conversations are too simple: %d further rows without continuity, %d calls spliced", split, changed)
	}
}

// TestContinuityChanged proves that a session in which the client changes a number is not spliced.
func TestContinuityChanged(t *testing.T) {
	t.Parallel()
	r := newSessionRig(t, proxy.Config{Continuity: true}, newSmallEngine(t, enginesim.DialectVLLM))
	key := r.begin(t)
	c := newConversation("[script:harness seed=3]", `{"n": 12345678901234567890}`)
	c.retell.javascript = true // which rounds the number
	c.run(t, r, key)
	if rows, spliced := rowsOf(t, r.record(t, key)); len(rows) < 2 || spliced > 0 {
		t.Errorf("%d rows, %d calls spliced", len(rows), spliced)
	}
}

// TestContinuityChains proves that several conversations of a session, some with the same messages,
// have one row each.
func TestContinuityChains(t *testing.T) {
	t.Parallel()
	r := newSessionRig(t, proxy.Config{Continuity: true}, newSmallEngine(t, enginesim.DialectVLLM))
	key := r.begin(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			c := newConversation(fmt.Sprintf("[script:harness seed=%d calls=3 think]", 1+i/2), arguments[0])
			c.retell = retelling{javascript: true, order: "reversed", reasoning: "dropped"}
			c.run(t, r, key)
		})
	}
	wg.Wait()
	if rows, spliced := rowsOf(t, r.record(t, key)); len(rows) != 6 || spliced == 0 {
		t.Errorf("%d rows, %d calls spliced", len(rows), spliced)
	}
}

// TestContinuityRefusedByEngine proves that the engine gets the client's own request if it refuses
// the changed one, for example because the prompt is too long.
func TestContinuityRefusedByEngine(t *testing.T) {
	t.Parallel()
	e := newSmallEngine(t, enginesim.DialectVLLM)
	r := newSessionRig(t, proxy.Config{Continuity: true}, trialed{e, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"reasoning`)) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		e.ServeHTTP(w, r)
	}})
	key := r.begin(t)
	c := newConversation("[script:harness seed=4 think]", arguments[0])
	c.retell.reasoning = "dropped"
	c.run(t, r, key)
	rows, spliced := rowsOf(t, r.record(t, key))
	if s := r.proxy.Stats(); len(rows) != 3 || spliced != 0 || s.Continued != 2 || s.SplicesRefused[http.StatusBadRequest] != 2 {
		t.Errorf("%d rows, %d calls spliced, %d continued, refused %v", len(rows), spliced, s.Continued, s.SplicesRefused)
	}
}
