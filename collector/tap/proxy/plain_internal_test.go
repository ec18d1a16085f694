package proxy

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// This file parses calls again, simply, with encoding/json, to check the fast readers.

type values = map[string]json.RawMessage

func plainObject(text []byte) values {
	var m values
	if json.Unmarshal(text, &m) != nil {
		return nil
	}
	return m
}

func plainNull(text []byte) bool { return len(text) == 0 || string(text) == "null" }

// plainInt parses a count or an id that consists only of digits.
func plainInt(text []byte) (int32, bool) {
	if len(text) == 0 || strings.Trim(string(text), "0123456789") != "" {
		return -1, false
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n > math.MaxInt32-9 {
		return -1, false
	}
	return int32(n), true
}

func plainIDs(text []byte) ([]int32, bool) {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil || list == nil {
		return nil, false
	}
	out := make([]int32, len(list))
	for i, v := range list {
		n, err := strconv.ParseInt(string(v), 10, 32)
		if err != nil || n < 0 || v[0] == '-' {
			return nil, false
		}
		out[i] = int32(n)
	}
	return out, true
}

func plainWord(text []byte) string {
	var s string
	if json.Unmarshal(text, &s) == nil {
		if len(s) > maxWord {
			return ""
		}
		return s
	}
	var n json.Number
	if json.Unmarshal(text, &n) == nil {
		return tokenize.VersionWord(n.String())
	}
	return ""
}

func plainCount(text []byte, n *int32) {
	if v, ok := plainInt(text); ok {
		*n = v
	}
}

// A plain is a parsed answer, with the names of tap.Call.
type plain struct {
	c            tap.Call
	prompt       []int32
	output       []int32
	logprobs     []float32
	logIDs       []int32
	bare, uneven bool
	mixed, bad   bool
	streamed     bool
	torn         bool
	said         string // weight version of the current document
	words        []string
	lists        [][]tokenize.VersionSpan
	events       []plainEvent
}

type plainEvent struct {
	output, logIDs []int32
	logprobs       []float32
	total          int32
}

func (p *plain) meta(m values) (e plainEvent) {
	var triples [][]json.RawMessage
	if json.Unmarshal(m["output_token_logprobs"], &triples) == nil {
		for _, t := range triples {
			v := float32(math.NaN())
			if len(t) > 0 && !plainNull(t[0]) {
				v = plainFloat(t[0])
			}
			id := int32(-1)
			if len(t) > 1 {
				id, _ = plainInt(t[1])
			}
			e.logprobs, e.logIDs = append(e.logprobs, v), append(e.logIDs, id)
		}
	}
	if f, ok := m["finish_reason"]; ok {
		p.c.Finish = plainWord(f)
		if o := plainObject(f); o != nil {
			if v, ok := o["type"]; ok {
				p.c.Finish = plainWord(v)
			}
			if v, ok := o["matched"]; ok {
				p.c.Matched, _ = plainInt(v)
			}
		}
	}
	p.versions(m)
	plainCount(m["prompt_tokens"], &p.c.PromptTokens)
	plainCount(m["completion_tokens"], &p.c.OutputTokens)
	plainCount(m["cached_tokens"], &p.c.Cached)
	return e
}

func (p *plain) versions(m values) {
	p.words = append(p.words, plainWord(m["weight_version"]))
	if plainNull(m["weight_versions"]) {
		return
	}
	spans := []tokenize.VersionSpan{}
	var list []values
	if json.Unmarshal(m["weight_versions"], &list) == nil {
		for _, v := range list {
			span := tokenize.VersionSpan{Version: plainWord(v["version"]), Start: -1, End: -1}
			plainCount(v["start"], &span.Start)
			plainCount(v["end"], &span.End)
			if spans = append(spans, span); v == nil {
				spans = spans[:0]
				break
			}
		}
	}
	p.lists = append(p.lists, spans)
}

// documented ends a document. All its weight versions must agree.
func (p *plain) documented() {
	for _, word := range p.words {
		if word != "" {
			p.torn = p.torn || p.said != "" && word != p.said
			p.mixed = p.mixed || p.c.Version != "" && p.c.Version != word
			p.said, p.c.Version = word, word
		}
	}
	for i, list := range p.lists {
		p.torn = p.torn || i > 0 && !slices.Equal(list, p.lists[i-1])
		p.c.Versions = list
	}
	p.words, p.lists, p.said = nil, nil, ""
}

func plainFloat(text []byte) float32 {
	f, _ := strconv.ParseFloat(string(text), 64)
	return float32(f)
}

func (p *plain) sglang(text []byte) {
	m := plainObject(text)
	p.bad = p.bad || m == nil || !plainNull(m["error"])
	var e plainEvent
	if meta := plainObject(m["meta_info"]); meta != nil {
		e = p.meta(meta)
	}
	e.output, _ = plainIDs(m["output_ids"])
	if ids, ok := plainIDs(m["prompt_token_ids"]); ok && len(ids) > 0 {
		p.prompt = ids
	}
	e.total = p.c.OutputTokens
	p.events = append(p.events, e)
	if !p.streamed {
		p.output, p.logIDs, p.logprobs = e.output, e.logIDs, e.logprobs
		return
	}
	// Either the last event has all tokens, or all events have them together.
	var sum plainEvent
	over, logOver := false, false
	for _, e := range p.events {
		sum.output = append(sum.output, e.output...)
		sum.logIDs = append(sum.logIDs, e.logIDs...)
		sum.logprobs = append(sum.logprobs, e.logprobs...)
		over, logOver = over || len(sum.output) > int(e.total), logOver || len(sum.logIDs) > int(e.total)
	}
	pick := func(last, all []int32, over bool) int {
		switch {
		case int(e.total) == len(last):
			return 1
		case int(e.total) == len(all) && !over:
			return 2
		}
		return 0
	}
	p.output, p.logIDs, p.logprobs = nil, nil, nil
	switch pick(e.output, sum.output, over) {
	case 1:
		p.output = e.output
	case 2:
		p.output = sum.output
	}
	switch pick(e.logIDs, sum.logIDs, logOver) {
	case 1:
		p.logIDs, p.logprobs = e.logIDs, e.logprobs
	case 2:
		p.logIDs, p.logprobs = sum.logIDs, sum.logprobs
	}
}

func (p *plain) openai(text []byte) {
	m := plainObject(text)
	p.bad = p.bad || m == nil || !plainNull(m["error"])
	if ids, ok := plainIDs(m["prompt_token_ids"]); ok && len(ids) > 0 {
		p.prompt = ids
	}
	p.versions(plainObject(m["metadata"]))
	p.versions(plainObject(m["sglext"]))
	if u := plainObject(m["usage"]); u != nil {
		defer func() {
			plainCount(u["prompt_tokens"], &p.c.PromptTokens)
			plainCount(u["completion_tokens"], &p.c.OutputTokens)
			plainCount(plainObject(u["prompt_tokens_details"])["cached_tokens"], &p.c.Cached)
		}()
	}
	var choices []values
	_ = json.Unmarshal(m["choices"], &choices)
	p.bad = p.bad || len(choices) > 1
	if len(choices) == 0 {
		return
	}
	c := choices[0]
	if n, ok := plainInt(c["index"]); ok && n > 0 {
		p.bad = true
	}
	ids, hasIDs := plainIDs(c["token_ids"])
	if hasIDs {
		p.output = slices.Concat(p.output, ids)
		if p.output == nil {
			p.output = []int32{}
		}
	}
	if ids, ok := plainIDs(c["prompt_token_ids"]); ok && len(ids) > 0 {
		p.prompt = ids
	}
	if !plainNull(c["finish_reason"]) {
		p.c.Finish = plainWord(c["finish_reason"])
	}
	for _, key := range []string{"stop_reason", "matched_stop"} {
		if !plainNull(c[key]) {
			p.c.Matched, _ = plainInt(c[key])
		}
	}
	var said []float32
	logprobs := plainObject(c["logprobs"])
	var content []values
	_ = json.Unmarshal(logprobs["content"], &content)
	for _, one := range content {
		said = append(said, plainKnown(one["logprob"]))
	}
	var flat []json.RawMessage
	_ = json.Unmarshal(logprobs["token_logprobs"], &flat)
	for _, one := range flat {
		said = append(said, plainKnown(one))
	}
	p.logprobs, p.bare = append(p.logprobs, said...), true
	p.uneven = p.uneven || len(said) != len(ids)
	if meta := plainObject(c["meta_info"]); meta != nil {
		q := plain{c: tap.Call{Matched: -1, PromptTokens: -1, OutputTokens: -1, Cached: -1}}
		e := q.meta(meta)
		if q.c.Finish != "" {
			p.c.Finish = q.c.Finish
		}
		if q.c.Matched >= 0 {
			p.c.Matched = q.c.Matched
		}
		p.words, p.lists = append(p.words, q.words...), append(p.lists, q.lists...)
		for _, n := range []struct{ to, from *int32 }{{&p.c.PromptTokens, &q.c.PromptTokens}, {&p.c.OutputTokens, &q.c.OutputTokens}, {&p.c.Cached, &q.c.Cached}} {
			if *n.from >= 0 {
				*n.to = *n.from
			}
		}
		if e.logIDs != nil && !p.streamed {
			p.bare, p.uneven, p.logIDs, p.logprobs = false, false, e.logIDs, e.logprobs
			if !hasIDs && len(e.logIDs) == int(q.c.OutputTokens) {
				p.output = e.logIDs
			}
		}
	}
}

func plainKnown(text []byte) float32 {
	if v := json.Number(""); !plainNull(text) && text[0] != '"' && json.Unmarshal(text, &v) == nil {
		return plainFloat(text)
	}
	return float32(math.NaN())
}

// plainAnswer parses an answer into c. It reports false if nothing is known of it.
func plainAnswer(d dialect, streamed bool, text []byte, c *tap.Call) bool {
	p := &plain{streamed: streamed, c: tap.Call{Matched: -1, PromptTokens: -1, OutputTokens: -1, Cached: -1}}
	documents := [][]byte{text}
	if streamed {
		documents = nil
		lines := strings.Split(string(text), "\n")
		var data []string
		for _, line := range lines[:len(lines)-1] { // the last one is incomplete
			line = strings.TrimSuffix(line, "\r")
			if rest, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(rest, " "))
			}
			if line == "" {
				// The reader drops empty lines at the beginning of an event, which change no JSON.
				if all := strings.TrimLeft(strings.Join(data, "\n"), "\n"); all != "" && all != "[DONE]" {
					documents = append(documents, []byte(all))
				}
				data = nil
			}
		}
	}
	for _, doc := range documents {
		if !json.Valid(doc) {
			return false
		}
		if (d == dialect(sglang{})) {
			p.sglang(bytes.TrimSpace(doc))
		} else {
			p.openai(bytes.TrimSpace(doc))
		}
		p.documented()
	}
	c.Finish, c.Matched, c.Version, c.Versions = p.c.Finish, p.c.Matched, p.c.Version, p.c.Versions
	if p.torn || p.mixed && c.Versions == nil {
		c.Version, c.Versions = "", []tokenize.VersionSpan{}
	}
	c.PromptTokens, c.OutputTokens, c.Cached = p.c.PromptTokens, p.c.OutputTokens, p.c.Cached
	if !p.bad && p.output != nil && (!streamed || p.c.Finish != "") {
		c.Output = p.output
		c.Logprobs = make([]float32, len(p.output))
		n := min(len(p.logprobs), len(p.output))
		if p.uneven || !p.bare && !slices.Equal(p.logIDs[:n], p.output[:n]) {
			n = 0
		}
		for i := range c.Logprobs {
			c.Logprobs[i] = float32(math.NaN())
			if i < n {
				c.Logprobs[i] = p.logprobs[i]
			}
		}
	}
	if p.prompt != nil {
		c.Prompt = p.prompt
	}
	if c.Prompt != nil && c.PromptTokens >= 0 && int(c.PromptTokens) != len(c.Prompt) {
		c.Prompt = nil
	}
	return true
}
