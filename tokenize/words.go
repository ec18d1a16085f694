package tokenize

import (
	"fmt"
	"strings"
)

// The closed lists of words, as they stand in columns, metrics and messages. The
// index is the value; an empty entry has no word.
var (
	roleWords       = [...]string{"prompt", "assistant", "tool", "user"}
	sourceWords     = [...]string{"none", "turns", "tap", "stored", "trace", "literal"}
	gradeWords      = [...]string{"exact", "count_verified", "unverified", "quarantined"}
	reasonWords     = [...]string{"", "no_prompt", "count_mismatch", "length_mismatch", "id_mismatch", "no_logprobs", "hole", "compacted", "vocab", "drift", "no_turns", "grade", "tool_order"}
	divergenceWords = [...]string{"", "prompt", "context", "earlier_output", "last_output", "proper_prefix", "after_lost"}
	driftWords      = [...]string{"fork", "realign", "reject"}
	flagWords       = [...]string{"cut", "client_tool_context", "censored", "surplus_logprobs", "realigned", "reattached", "length"}
)

// word returns the word of value i, or one that shows a broken value.
func word(list []string, i int, noun string) string {
	if i >= 0 && i < len(list) {
		return list[i]
	}
	return fmt.Sprintf("%s(%d)", noun, i)
}

// marshal is word for MarshalText: a value without a word is an error.
func marshal(list []string, i int, noun string) ([]byte, error) {
	if i >= 0 && i < len(list) {
		return []byte(list[i]), nil
	}
	return nil, fmt.Errorf("tokenize: %s %d has no name", noun, i)
}

// value is the inverse of word.
func value(list []string, text, noun string) (int, error) {
	for i, w := range list {
		if w == text {
			return i, nil
		}
	}
	return 0, fmt.Errorf("tokenize: unknown %s %q (one of %s)", noun, text, strings.TrimPrefix(strings.Join(list, ", "), ", "))
}

func (r Role) String() string { return word(roleWords[:], int(r), "role") }

// MarshalText writes the word of r.
func (r Role) MarshalText() ([]byte, error) { return marshal(roleWords[:], int(r), "role") }

// UnmarshalText accepts the words that MarshalText writes.
func (r *Role) UnmarshalText(b []byte) error {
	v, err := value(roleWords[:], string(b), "role")
	if err == nil {
		*r = Role(v)
	}
	return err
}

func (s PromptSource) String() string { return word(sourceWords[:], int(s), "prompt source") }

// MarshalText writes the word of s.
func (s PromptSource) MarshalText() ([]byte, error) {
	return marshal(sourceWords[:], int(s), "prompt source")
}

// UnmarshalText accepts the words that MarshalText writes.
func (s *PromptSource) UnmarshalText(b []byte) error {
	v, err := value(sourceWords[:], string(b), "prompt source")
	if err == nil {
		*s = PromptSource(v)
	}
	return err
}

func (g Grade) String() string { return word(gradeWords[:], int(g), "grade") }

// MarshalText writes the word of g.
func (g Grade) MarshalText() ([]byte, error) { return marshal(gradeWords[:], int(g), "grade") }

// UnmarshalText accepts the words that MarshalText writes.
func (g *Grade) UnmarshalText(b []byte) error {
	v, err := value(gradeWords[:], string(b), "grade")
	if err == nil {
		*g = Grade(v)
	}
	return err
}

// String returns the word of r; it is empty for ReasonNone.
func (r Reason) String() string { return word(reasonWords[:], int(r), "reason") }

// MarshalText writes the word of r; it is empty for ReasonNone.
func (r Reason) MarshalText() ([]byte, error) { return marshal(reasonWords[:], int(r), "reason") }

// UnmarshalText accepts the words that MarshalText writes.
func (r *Reason) UnmarshalText(b []byte) error {
	v, err := value(reasonWords[:], string(b), "reason")
	if err == nil {
		*r = Reason(v)
	}
	return err
}

// String returns the word of k; it is empty for the zero value.
func (k DivergenceKind) String() string { return word(divergenceWords[:], int(k), "divergence kind") }

// MarshalText writes the word of k; it is empty for the zero value.
func (k DivergenceKind) MarshalText() ([]byte, error) {
	return marshal(divergenceWords[:], int(k), "divergence kind")
}

// UnmarshalText accepts the words that MarshalText writes.
func (k *DivergenceKind) UnmarshalText(b []byte) error {
	v, err := value(divergenceWords[:], string(b), "divergence kind")
	if err == nil {
		*k = DivergenceKind(v)
	}
	return err
}

func (d Drift) String() string { return word(driftWords[:], int(d), "drift") }

// MarshalText writes the word of d.
func (d Drift) MarshalText() ([]byte, error) { return marshal(driftWords[:], int(d), "drift") }

// UnmarshalText accepts the words that MarshalText writes.
func (d *Drift) UnmarshalText(b []byte) error {
	v, err := value(driftWords[:], string(b), "drift")
	if err == nil {
		*d = Drift(v)
	}
	return err
}

// AppendNames appends the name of each flag in f, lowest bit first: the flags
// column of a row.
func (f Flags) AppendNames(dst []string) []string {
	for i, w := range flagWords {
		if f&(1<<i) != 0 {
			dst = append(dst, w)
		}
	}
	return dst
}

// String returns the names joined by commas; it is empty where no flag is set.
func (f Flags) String() string { return strings.Join(f.AppendNames(nil), ",") }

// MarshalText writes the names joined by commas; a bit without a name is an error.
func (f Flags) MarshalText() ([]byte, error) {
	if f>>len(flagWords) != 0 {
		return nil, fmt.Errorf("tokenize: flags %#x have no name", uint16(f))
	}
	return []byte(f.String()), nil
}

// UnmarshalText accepts what MarshalText writes.
func (f *Flags) UnmarshalText(b []byte) error {
	var set Flags
	if len(b) > 0 {
		for name := range strings.SplitSeq(string(b), ",") {
			i, err := value(flagWords[:], name, "flag")
			if err != nil {
				return err
			}
			set |= 1 << i
		}
	}
	*f = set
	return nil
}
