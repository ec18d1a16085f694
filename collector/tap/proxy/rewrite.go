package proxy

import (
	"cmp"
	"slices"

	"github.com/rollout-rl/rollout/collector/tap"
)

// An edit replaces a span of a body with other text. The edits to one body must not overlap.
type edit struct {
	span
	text []byte
}

// edited returns a copy of body with the edits applied.
func edited(body []byte, edits []edit) []byte {
	size := len(body)
	for _, e := range edits {
		size += len(e.text)
	}
	return appendEdited(make([]byte, 0, size), body, edits)
}

// appendEdited appends body with the edits applied to dst. It sorts the edits.
func appendEdited(dst, body []byte, edits []edit) []byte {
	sortEdits(edits)
	at := 0
	for _, e := range edits {
		dst = append(append(dst, body[at:e.from]...), e.text...)
		at = e.to
	}
	return append(dst, body[at:]...)
}

func sortEdits(edits []edit) {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
}

// around applies the edits to body and returns a payload with the parts before and after a list of
// ids. place is the position of the list in body. The edits must not overlap the list.
func around(body []byte, place span, edits []edit) *payload {
	var front, back []edit
	for _, e := range edits {
		if e.from >= place.to {
			e.from, e.to = e.from-place.to, e.to-place.to
			back = append(back, e)
		} else {
			front = append(front, e)
		}
	}
	return &payload{front: edited(body[:place.from], front), back: edited(body[place.to:], back)}
}

// put appends edits that set the given members in o. These edits replace the values of existing
// members and insert new members at the beginning of o.
func (o *object) put(edits []edit, members []ask) []edit {
	var added []byte
	for _, m := range members {
		if i := o.find(m.key); i >= 0 {
			edits = append(edits, edit{o.members[i].value, []byte(m.value)})
			continue
		}
		if added != nil {
			added = append(added, ',')
		}
		added = append(append(added, quoted(m.key)...), ':')
		added = append(added, m.value...)
	}
	if added == nil {
		return edits
	}
	if !o.empty {
		added = append(added, ',')
	}
	return append(edits, edit{span{o.open, o.open}, added})
}

// edits returns the edits that apply the settings in set to the body, and that add the members in asks
// which the body lacks.
func (q *request) edits(set *Set, asks []ask) []edit {
	var edits []edit
	var root []ask
	if sets := set.members(q.keys); sets != nil {
		inRoot := false
		for _, o := range q.sampling {
			if o == &q.root {
				inRoot = true
			} else {
				edits = o.put(edits, sets)
			}
		}
		switch {
		case inRoot:
			root = sets
		case len(q.sampling) == 0:
			none := object{open: 1, empty: true}
			made := edited([]byte("{}"), none.put(nil, sets))
			if q.samplingAt != (span{}) {
				edits = append(edits, edit{q.samplingAt, made})
			} else {
				root = append(root, ask{"sampling_params", string(made)})
			}
		}
	}
	for _, a := range asks {
		if q.root.find(a.key) < 0 {
			root = append(root, a)
		}
	}
	return q.root.put(edits, root)
}

func (s *Set) members(keys *names) (out []ask) {
	for i, value := range s.values {
		if value != "" && keys[i] != "" {
			out = append(out, ask{keys[i], value})
		}
	}
	return out
}

// told returns the sampling parameters that the engine receives. Parameters in set override the
// parameters in the body.
func (q *request) told(set *Set) tap.Sampling {
	var c tap.Sampling
	for i, key := range q.keys {
		if key == "" {
			continue
		}
		if set.values[i] != "" {
			read(&c, i, []byte(set.values[i]))
		} else if len(q.sampling) == 1 {
			if value := q.sampling[0].value(q.body, key); value != nil {
				read(&c, i, value)
			}
		}
	}
	return c
}
