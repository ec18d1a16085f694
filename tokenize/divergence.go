package tokenize

import "strconv"

// AppendDivergence appends what Divergence and Realigned tell as one JSON object,
// the divergence column, and nothing where they are empty. The members of
// Divergence come first, so one without "kind" is not a fork:
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
		dst[len(dst)-1] = ',' // was the closing brace
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
	dst = append(dst, d.Kind.String()...) // a closed list without quotes
	dst = append(dst, `","row":`...)
	dst = appendInts(dst, d.Row)
	dst = append(dst, `,"prompt":`...)
	dst = appendInts(dst, d.Prompt)
	return append(dst, '}')
}

func appendInts(dst []byte, ids []int32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, ']')
}

// window returns the first DivergenceWindow ids from position n on of head and tail
// laid end to end, appended to dst.
func window(dst, head, tail []int32, n int) []int32 {
	if n < len(head) {
		dst = append(dst, head[n:min(len(head), n+DivergenceWindow)]...)
	}
	if room := DivergenceWindow - len(dst); room > 0 {
		from := min(max(n-len(head), 0), len(tail))
		dst = append(dst, tail[from:min(len(tail), from+room)]...)
	}
	return dst
}
