// Package continuitytest checks spliced prompts. It shares no code with package continuity.
package continuitytest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// The Qwen3 tokens that begin and end a turn.
const (
	imStart = 151644
	imEnd   = 151645
)

var header = []int32{imStart, 77091, 198}

// Check returns an error if the prompt sent is not a valid splice of the prompt asked. Both prompts
// must be Qwen3 prompts, and tok must be the Qwen3 tokenizer. Check splits both prompts at the
// tokens that begin a turn, and requires that
//
//   - both prompts have the same number of turns, and the turns of other roles are identical;
//   - each model turn is identical, or sent contains the next output and asked contains a print of
//     this output;
//   - everything after the end of a turn is identical.
func Check(tok *bpe.Tokenizer, asked, sent []int32, outputs [][]int32) error {
	a, s := turnsOf(asked), turnsOf(sent)
	if len(a) != len(s) {
		return fmt.Errorf("asked has %d turns, but sent has %d", len(a), len(s))
	}
	for i := range a {
		if slices.Equal(a[i], s[i]) {
			continue
		}
		endA, endS := slices.Index(a[i], imEnd), slices.Index(s[i], imEnd)
		if endA < 3 || endS < 3 || !slices.Equal(a[i][:3], header) || !slices.Equal(s[i][:3], header) {
			return fmt.Errorf("turn %d changed but is not a turn of the model: asked %v, sent %v", i, a[i], s[i])
		}
		if !slices.Equal(a[i][endA:], s[i][endS:]) {
			return fmt.Errorf("turn %d differs after its end: asked %v, sent %v", i, a[i][endA:], s[i][endS:])
		}
		from := slices.IndexFunc(outputs, func(o []int32) bool { return slices.Equal(o, s[i][3:endS+1]) })
		if from < 0 {
			return fmt.Errorf("turn %d was not sampled: %v", i, s[i])
		}
		outputs = outputs[from+1:]
		output, err := tok.AppendText(nil, s[i][3:endS], bpe.DecodeOptions{})
		if err != nil {
			return err
		}
		printed, err := tok.AppendText(nil, a[i][3:endA], bpe.DecodeOptions{})
		if err != nil {
			return err
		}
		if !printOf(string(output), string(printed)) {
			return fmt.Errorf("turn %d: %q is not a print of %q", i, printed, output)
		}
	}
	return nil
}

func turnsOf(ids []int32) [][]int32 {
	var turns [][]int32
	for len(ids) > 0 {
		n := cmp.Or(slices.Index(ids[1:], imStart)+1, len(ids))
		turns = append(turns, ids[:n])
		ids = ids[n:]
	}
	return turns
}

var callPattern = regexp.MustCompile(`(?s)<tool_call>(.*?)</tool_call>`)

// printOf reports whether printed can be a server's print of output. It compares decoded JSON
// trees.
func printOf(output, printed string) bool {
	plain := func(s string) string {
		s = callPattern.ReplaceAllString(s, "")
		for _, word := range []string{"<think>", "</think>"} {
			parts := strings.Split(s, word)
			for i := range parts {
				parts[i] = strings.Trim(parts[i], " \t\r\n")
			}
			s = strings.Join(parts, word)
		}
		return s
	}
	o, p := callPattern.FindAllStringSubmatch(output, -1), callPattern.FindAllStringSubmatch(printed, -1)
	if len(o) != len(p) {
		return false
	}
	for i := range o {
		if !sameTree(tree(o[i][1]), tree(p[i][1])) {
			return false
		}
	}
	text := plain(printed)
	return text == plain(output) || text == "" && len(o) > 0
}

// An object is a JSON object with its members in order.
type object [][2]any

func tree(s string) any {
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.UseNumber()
	var value func() any
	value = func() any {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'):
			o := object{}
			for d.More() {
				key, _ := d.Token()
				o = append(o, [2]any{key, value()})
			}
			_, _ = d.Token()
			return o
		case json.Delim('['):
			list := []any{}
			for d.More() {
				list = append(list, value())
			}
			_, _ = d.Token()
			return list
		}
		if n, ok := t.(json.Number); ok {
			if r, ok := new(big.Rat).SetString(string(n)); ok {
				return r.RatString()
			}
		}
		return t
	}
	return value()
}

func sameTree(a, b any) bool {
	switch a := a.(type) {
	case error:
		return false
	case object:
		o, ok := b.(object)
		return ok && slices.EqualFunc(a, o, func(x, y [2]any) bool { return x[0] == y[0] && sameTree(x[1], y[1]) })
	case []any:
		o, ok := b.([]any)
		return ok && slices.EqualFunc(a, o, sameTree)
	}
	switch b.(type) {
	case error, object, []any:
		return false
	}
	return a == b
}
