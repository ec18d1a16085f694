package bpe

import (
	"strings"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

type normStep struct {
	kind normKind
	from string // for Replace
	to   string // for Replace and Prepend
}

type normKind uint8

const (
	stepNFC normKind = iota
	stepPrepend
	stepReplace
)

// A normalizer holds the scratch memory for normalizing text.
type normalizer struct {
	runes []markedRune
	out   []byte // output of the current step
	spare []byte // output of the previous step
}

// normalize applies all steps to s. The result is valid until the next call. s must be valid UTF-8.
// Each step reads the output of the previous step, so the two buffers alternate.
func (n *normalizer) normalize(steps []normStep, s string) string {
	for i := range steps {
		n.out, n.spare = n.spare, n.out
		next, changed := n.apply(&steps[i], s)
		if !changed {
			n.out, n.spare = n.spare, n.out
		}
		s = next
	}
	return s
}

// apply applies one step to s. The second result reports whether the text is in n.out.
func (n *normalizer) apply(step *normStep, s string) (_ string, changed bool) {
	switch step.kind {
	case stepNFC:
		return n.nfc(s)
	case stepPrepend:
		if s == "" {
			return s, false
		}
		n.out = append(append(n.out[:0], step.to...), s...)
	case stepReplace:
		if !strings.Contains(s, step.from) {
			return s, false
		}
		n.out = appendReplaced(n.out[:0], s, step.from, step.to)
	}
	return textview.Of(n.out), true
}

func appendReplaced(dst []byte, s, from, to string) []byte {
	for {
		i := strings.Index(s, from)
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(append(dst, s[:i]...), to...)
		s = s[i+len(from):]
	}
}
