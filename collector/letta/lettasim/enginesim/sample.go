package enginesim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A generation is one call in progress.
type generation struct {
	call    Call
	reply   reply
	printed []string // the planted log-probabilities by position; nil if there are none
	chat    bool     // the call is a chat completion
	unique  bool     // the ids of tool calls differ even between equal prompts
	experts bool     // the answer has routed experts in meta_info or sglext
	masks   bool     // the answer has sampling masks in meta_info
	turn    *turn    // the place in a harness's conversation, or nil
}

// run samples the answer to the prompt in g.call and reports whether the caller must send it. If
// the call fails, run answers with an error or drops the connection.
func (e *Engine) run(ctx context.Context, w http.ResponseWriter, g *generation, limit int64, summary bool) bool {
	c := &g.call
	where, refusal := e.place(g, summary)
	if refusal != "" {
		return e.fault(w, g, http.StatusBadRequest, refusal)
	}
	c.Script, c.Seed, c.Step = where.Script, where.Params["seed"], where.Step

	if d := time.Duration(g.reply.delayMS) * time.Millisecond; d > 0 && !wait.For(ctx, d) {
		return e.fault(w, g, 0, "")
	}
	if err := e.sample(where, g, limit); err != nil {
		return e.fault(w, g, http.StatusInternalServerError, err.Error())
	}
	c.Status, c.Ended = http.StatusOK, time.Now()
	e.truth.keep(*c)
	return true
}

// place finds the conversation of the call and sets the reply. It returns the message of a refusal
// if there is no reply.
func (e *Engine) place(g *generation, summary bool) (where *conversation, refusal string) {
	c := &g.call
	seed := PromptSeed(c.InputIDs)
	if t := g.turn; t != nil {
		t.Prompt = seed
		g.reply = t.after(c.Fault, t.reply())
		return &t.conversation, ""
	}
	text, err := e.text(c.InputIDs, false)
	if err != nil {
		return nil, err.Error()
	}
	found := find(text, e.result)
	where = &found
	where.Prompt = seed
	c.Agent = where.Agent
	if summary {
		where.Script, g.reply = "", reply{text: "Summary: the user and the assistant talked; nothing is left to do."}
		return where, ""
	}
	e.memory.complete(where)
	if e.cfg.ByMarker {
		where.Agent, where.Prompt = "", wordSeed(fmt.Sprint(where.Script, where.Params, where.Step))
	}
	script, ok := e.scripts[where.Script]
	switch {
	case where.Script == "":
		g.reply = reply{text: "Hello. What can I do for you?"}
	case !ok:
		return nil, fmt.Sprintf("unknown script %q (want one of %s)", where.Script, strings.Join(slices.Sorted(maps.Keys(e.scripts)), ", "))
	default:
		g.reply = script.reply(where)
	}
	return where, ""
}

// fault records the call and answers with the status. If the status is 0, it drops the connection.
func (e *Engine) fault(w http.ResponseWriter, g *generation, status int, message string) bool {
	g.call.Status, g.call.Ended = status, time.Now()
	e.truth.keep(g.call)
	e.log(&g.call)
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	if g.chat {
		answer(w, status, e.cfg.Dialect.problem(status, message))
	} else {
		refuse(w, status, message)
	}
	return false
}

// delivery returns the delivery of the call's answer.
func (e *Engine) delivery(w http.ResponseWriter, r *http.Request, g *generation) *delivery {
	d := &delivery{w: w, r: r}
	d.settle = func() {
		g.call.Listed, g.call.Complete = d.listed, d.complete
		e.truth.update(g.call)
	}
	return d
}

// ended completes the record of a call whose answer was sent. If the answer was cut off, ended
// drops the connection.
func (e *Engine) ended(g *generation, d *delivery) {
	d.settle()
	e.log(&g.call)
	if d.cut > 0 {
		panic(http.ErrAbortHandler)
	}
}

// sample generates the ids and log-probabilities of the reply.
func (e *Engine) sample(where *conversation, g *generation, limit int64) error {
	c, r := &g.call, &g.reply
	draw := rand.New(rand.NewPCG(where.Prompt, uint64(where.Step)))
	said := r.said(where, draw)
	var err error
	if c.OutputIDs, err = e.split(r.split, said, draw); err != nil {
		return err
	}
	if !r.length {
		c.OutputIDs = append(c.OutputIDs, e.stop)
	}
	ids := c.OutputIDs
	if n := int64(len(ids)); r.length || n > limit {
		ids = ids[:min(n, limit)]
		c.OutputIDs, c.Finish = ids, Finish{Type: "length", Length: limit}
	} else {
		ids = ids[:n-1]
		c.Finish = Finish{Type: "stop", Matched: &c.OutputIDs[n-1]}
	}
	if c.Text, err = e.text(ids, true); err != nil {
		return err
	}
	if c.Finish.Type != "length" && c.Text != said {
		return fmt.Errorf("script %s, call %d: the text changes when its tokens are decoded: %q became %q", where.Script, where.Step, said, c.Text)
	}

	seed := where.Prompt
	if r.equal != "" {
		seed = wordSeed(r.equal)
	}
	c.Logprobs = sglang.Logprobs(seed, c.OutputIDs)
	for i, p := range r.plant {
		if i < 0 {
			i += len(c.OutputIDs)
		}
		if i < 0 || i >= len(c.OutputIDs) {
			continue
		}
		if g.printed == nil {
			g.printed = make([]string, len(c.OutputIDs))
		}
		g.printed[i] = p
		f, err := strconv.ParseFloat(p, 32)
		if err != nil {
			f = math.NaN()
		}
		c.Logprobs[i] = float32(f)
	}
	c.Version = cmp.Or(r.version, *e.version.Load())
	return nil
}

// added matches the tags that are single tokens. Random splitting leaves these tags intact.
var added = regexp.MustCompile(`</?(?:think|tool_call|tool_response)>`)

// split tokenizes text in the way that the field reply.split describes.
func (e *Engine) split(how, text string, draw *rand.Rand) ([]int32, error) {
	var ids []int32
	for piece := range pieces(how, text, draw) {
		if e.cfg.Tokenizer == nil {
			for i := range len(piece) {
				ids = append(ids, int32(piece[i]))
			}
			continue
		}
		var err error
		if ids, err = e.cfg.Tokenizer.AppendTokens(ids, piece); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// pieces yields the parts of text that are tokenized separately.
func pieces(how, text string, draw *rand.Rand) iter.Seq[string] {
	return func(yield func(string) bool) {
		var whole [][]int
		if how == "random" {
			whole = added.FindAllStringIndex(text, -1)
		}
		from := 0
		for i := range text {
			cut := i > from && (how == "chars" || how == "random" && draw.IntN(4) == 0)
			for _, w := range whole {
				switch {
				case i > w[0] && i < w[1]:
					cut = false
				case i == w[0] && i > from, i == w[1]:
					cut = true
				}
			}
			if cut {
				if !yield(text[from:i]) {
					return
				}
				from = i
			}
		}
		if from < len(text) {
			yield(text[from:])
		}
	}
}

// text returns the text of ids. If spoken is set, it omits special tokens, as an engine does in its
// answers.
func (e *Engine) text(ids []int32, spoken bool) (string, error) {
	if e.cfg.Tokenizer != nil {
		text, err := e.cfg.Tokenizer.AppendText(nil, ids, bpe.DecodeOptions{SkipSpecial: spoken})
		return string(text), err
	}
	var text []byte
	for i, id := range ids {
		switch {
		case id == byteStop:
		case id < 0 || id > 255:
			return "", fmt.Errorf("token %d has id %d, which is not a byte", i, id)
		default:
			text = append(text, byte(id))
		}
	}
	if spoken && !utf8.Valid(text) {
		text = []byte(string([]rune(string(text))))
	}
	return string(text), nil
}
