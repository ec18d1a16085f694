package enginesim

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A generation is one call under way.
type generation struct {
	call    Call
	reply   Reply
	printed []string // log-probabilities that are printed otherwise, by position; or nil
}

// run answers the prompt of call: what is sampled, and whether the answer is to be sent.
// It returns false where the answer was given here: a fault, or a client that has gone.
func (e *Engine) run(ctx context.Context, w http.ResponseWriter, g *generation, limit int64, summary bool) bool {
	c := &g.call
	c.Cached = e.cached(c.InputIDs)
	text, err := e.text(c.InputIDs, false)
	if err != nil {
		return e.fault(w, g, http.StatusBadRequest, err.Error())
	}
	where := find(text, e.cfg.Result)
	where.Prompt = PromptSeed(c.InputIDs)
	c.Agent = where.Agent
	if summary {
		where.Script, g.reply = "", Reply{Text: e.cfg.Summary}
	} else {
		e.memory.complete(&where)
		if e.cfg.ByMarker {
			where.Agent, where.Prompt = "", wordSeed(fmt.Sprint(where.Script, where.Params, where.Step))
		}
		script, ok := e.cfg.Scripts[where.Script]
		switch {
		case where.Script == "":
			g.reply = Reply{Text: "Hello. What can I do for you?"}
		case !ok:
			return e.fault(w, g, http.StatusBadRequest, fmt.Sprintf("unknown script %q (want one of %v)", where.Script, e.Scripts()))
		default:
			g.reply = script.reply(&where)
		}
	}
	c.Script, c.Seed, c.Step = where.Script, where.Params["seed"], where.Step

	if d := g.reply.delay(); d > 0 {
		wait := time.NewTimer(d)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return e.fault(w, g, 0, "")
		}
	}
	failed := e.memory.fails(&where, &g.reply)
	if failed && g.reply.Status != 0 {
		return e.fault(w, g, g.reply.Status, "scripted error")
	}
	if failed && g.reply.Drop {
		return e.fault(w, g, 0, "")
	}
	if err := e.sample(&where, g, limit); err != nil {
		return e.fault(w, g, http.StatusInternalServerError, err.Error())
	}
	if failed { // Late
		return e.fault(w, g, 0, "")
	}
	c.Status, c.Ended = http.StatusOK, time.Now()
	if err := e.truth.keep(*c); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return false
	}
	return true
}

// fault keeps the call and answers a status, or with 0 drops the connection.
func (e *Engine) fault(w http.ResponseWriter, g *generation, status int, message string) bool {
	g.call.Status, g.call.Ended = status, time.Now()
	if err := e.truth.keep(g.call); err != nil {
		status, message = http.StatusInternalServerError, err.Error()
	}
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	refuse(w, status, message)
	return false
}

// sample makes the ids and log-probabilities of the reply.
func (e *Engine) sample(where *Conversation, g *generation, limit int64) error {
	c, r := &g.call, &g.reply
	draw := rand.New(rand.NewPCG(where.Prompt, uint64(where.Step)))
	said := r.said(where, draw)
	c.OutputIDs = slices.Clone(r.OutputIDs)
	if c.OutputIDs == nil {
		ids, err := e.split(r.Split, said, draw)
		if err != nil {
			return err
		}
		if r.Finish == "" || r.Finish == "stop" {
			ids = append(ids, e.stop)
		}
		c.OutputIDs = ids
	}
	c.Finish = Finish{Type: r.Finish}
	if int64(len(c.OutputIDs)) > limit || r.Finish == "length" {
		c.OutputIDs = c.OutputIDs[:min(int64(len(c.OutputIDs)), limit)]
		c.Finish = Finish{Type: "length", Length: limit}
	} else if n := len(c.OutputIDs); r.Finish == "abort" {
		c.Finish.Message = "Abort in process"
	} else if c.Finish.Type = "stop"; n > 0 && c.OutputIDs[n-1] == e.stop {
		c.Finish.Matched = &c.OutputIDs[n-1]
	}
	ids := c.OutputIDs
	if c.Finish.Matched != nil {
		ids = ids[:len(ids)-1]
	}
	var err error
	if c.Text, err = e.text(ids, true); err != nil {
		return err
	}
	if r.OutputIDs == nil && c.Finish.Type != "length" && c.Text != said {
		return fmt.Errorf("script %s, call %d: the text changes when its tokens are decoded: %q became %q", where.Script, where.Step, said, c.Text)
	}

	seed := where.Prompt
	if r.Equal != "" {
		seed = wordSeed(r.Equal)
	}
	c.Logprobs = sglang.Logprobs(seed, c.OutputIDs)
	for i, p := range r.Plant {
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
	e.learn(c.InputIDs, c.OutputIDs)
	c.Version = *e.version.Load()
	if r.Version != "" {
		c.Version = r.Version
	}
	return nil
}

// added are texts that are one token each and that a random split leaves whole.
var added = regexp.MustCompile(`</?(?:think|tool_call|tool_response)>`)

// split makes tokens of a text.
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

// pieces are the parts of a text that are tokenized each by itself.
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

// text is the text of ids; spoken leaves special tokens out, as an engine's answer does.
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
