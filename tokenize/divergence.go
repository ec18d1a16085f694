package tokenize

import "strconv"

// A Divergence is the first difference between a prompt and the open row. It explains why a new row
// begins (Row.Divergence) or records a repair within a row (Row.Realigned).
type Divergence struct {
	// Call is the index, within the sample, of the call whose prompt diverged.
	Call int32
	// Offset is the first position, in tokens, at which the row and the prompt differ.
	Offset int32
	Kind   DivergenceKind
	// Row and Prompt hold the ids of the row and the prompt from Offset on, for display. Each has
	// at most DivergenceWindow ids.
	Row, Prompt []int32
}

// DivergenceWindow is the maximum number of ids that a Divergence keeps from the row and from the
// prompt. Sixteen ids are enough to show the difference.
const DivergenceWindow = 16

// A DivergenceKind states where a prompt diverged from the row.
type DivergenceKind uint8

// The kinds of divergence.
const (
	DivergedInPrompt     DivergenceKind = iota + 1 // before the first sampled token of the row
	DivergedInContext                              // in a tool or user span
	DivergedInEarlier                              // in an earlier output of the row, or in cut calls after the row
	DivergedInLast                                 // in the last output of the row
	DivergedProperPrefix                           // the prompt equals the row or is a proper prefix of the row
	DivergedAfterLost                              // the previous call is quarantined
)

// newDivergence returns the divergence between the prompt of call k and the concatenation of head
// and tail. The two sequences differ at position n.
func (a *Aligner) newDivergence(k, n int, head, tail []int32) *Divergence {
	return &Divergence{
		Call: int32(k), Offset: int32(n), Kind: a.kind(k, n, len(head)+len(tail)),
		Row: window(head, tail, n), Prompt: window(a.calls[k].PromptIDs, nil, n),
	}
}

func (a *Aligner) kind(k, n, seen int) DivergenceKind {
	shown := a.lastRow
	if a.open {
		shown = len(a.rows) - 1
	}
	switch {
	case n == len(a.calls[k].PromptIDs):
		return DivergedProperPrefix
	case shown >= 0 && n < int(a.rows[shown].PromptLength):
		return DivergedInPrompt
	case n >= seen-len(a.calls[k-1].OutputIDs):
		return DivergedInLast
	case shown >= 0 && n < len(a.rows[shown].InputIDs):
		row := &a.rows[shown]
		if Role(row.TurnRoles[row.spanOf(n)]) != RoleAssistant {
			return DivergedInContext
		}
	}
	return DivergedInEarlier
}

// window returns up to DivergenceWindow ids from the concatenation of head and tail, starting at
// position n.
func window(head, tail []int32, n int) (ids []int32) {
	for i := n; i < min(n+DivergenceWindow, len(head)+len(tail)); i++ {
		if i < len(head) {
			ids = append(ids, head[i])
		} else {
			ids = append(ids, tail[i-len(head)])
		}
	}
	return ids
}

// AppendDivergence appends Divergence and Realigned as one JSON object, for the `divergence`
// column. It appends nothing if both fields are empty. An object without "kind" records only
// repairs, not a fork:
//
//	{"call":3,"offset":812,"kind":"last_output","row":[198],"prompt":[151645]}
//	{"call":3,"offset":812,…,"prompt":[151645],"realigned":[{"call":5,"offset":990,…}]}
//	{"realigned":[{"call":5,"offset":990,"kind":"last_output","row":[198],"prompt":[151645]}]}
func (r *Row) AppendDivergence(dst []byte) []byte {
	if r.Divergence != nil {
		dst = r.Divergence.AppendJSON(dst)
	}
	if len(r.Realigned) == 0 {
		return dst
	}
	if r.Divergence != nil {
		dst[len(dst)-1] = ',' // replaces the closing brace
	} else {
		dst = append(dst, '{')
	}
	dst = append(dst, `"realigned":[`...)
	for i := range r.Realigned {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.Realigned[i].AppendJSON(dst)
	}
	return append(dst, `]}`...)
}

// AppendJSON appends d as one JSON object.
//
//	{"call":3,"offset":812,"kind":"last_output","row":[198,271],"prompt":[151645]}
func (d *Divergence) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"call":`...)
	dst = strconv.AppendInt(dst, int64(d.Call), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, int64(d.Offset), 10)
	dst = append(dst, `,"kind":"`...)
	dst = append(dst, d.Kind.String()...) // the word for a kind never contains a quote
	dst = append(dst, `","row":`...)
	dst = AppendIDs(dst, d.Row)
	dst = append(dst, `,"prompt":`...)
	dst = AppendIDs(dst, d.Prompt)
	return append(dst, '}')
}

// AppendIDs appends a JSON list of ids.
func AppendIDs(dst []byte, ids []int32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, ']')
}
