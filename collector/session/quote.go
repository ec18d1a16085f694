package session

import (
	"cmp"
	"slices"
	"strings"
)

// minQuote is the length of the shortest quote in bytes. A shorter text can be a part of a message by
// accident.
const minQuote = 32

// A quote is the text of an answer that can be a part of later messages: the result of a subagent, or
// a summary.
type quote struct {
	text   string
	calls  []*call // the calls with this answer, in the order in which they ended
	prefix int     // the index of the longest other quote that is the beginning of text, or -1
}

// findQuotes sets b.quotes and call.quoted. An answer is quoted if a message contains its text, no
// other answer had this text when the message was first sent, and the answer had ended by then.
func (b *builder) findQuotes() {
	s := newQuoteSearch(b.calls)
	if len(s.quotes) == 0 {
		return
	}
	done := make([]bool, len(b.record.Texts))
	for _, c := range b.requests {
		for _, i := range c.Messages {
			if done[i] {
				continue
			}
			done[i] = true
			b.quotes[i] = s.find(b.message(i).text)
			for _, q := range b.quotes[i] {
				if q.calls[0].before(c) && (len(q.calls) == 1 || !q.calls[1].before(c)) {
					q.calls[0].quoted = true
				}
			}
		}
	}
}

// A quoteSearch finds all quotes in a text. Its time does not depend on the number of quotes.
type quoteSearch struct {
	quotes []*quote // sorted by text
	filter []bool   // by the hash of the first minQuote bytes of a quote
	mask   uint64   // len(filter)-1
}

// newQuoteSearch searches for the answers that end a conversation. Other answers are messages of a
// later request.
func newQuoteSearch(calls []*call) *quoteSearch {
	byText := map[string]*quote{}
	for _, c := range calls {
		if t := c.answer.text; len(t) >= minQuote && (len(c.readers) == 0 || !c.answer.called()) {
			byText[t] = &quote{text: t, prefix: -1}
		}
	}
	for _, c := range calls {
		if q := byText[c.answer.text]; q != nil {
			q.calls = append(q.calls, c)
		}
	}
	size := 1
	for size < 64*len(byText) {
		size *= 2
	}
	s := &quoteSearch{filter: make([]bool, size), mask: uint64(size - 1)}
	for _, q := range byText {
		slices.SortStableFunc(q.calls, func(x, y *call) int { return cmp.Compare(x.ended, y.ended) })
		s.quotes = append(s.quotes, q)
	}
	slices.SortFunc(s.quotes, func(x, y *quote) int { return strings.Compare(x.text, y.text) })
	for i, q := range s.quotes {
		for k := i - 1; k >= 0; k = s.quotes[k].prefix {
			if strings.HasPrefix(q.text, s.quotes[k].text) {
				q.prefix = k
				break
			}
		}
		hash := uint64(0)
		for k := range minQuote {
			hash = hash*quoteFactor + uint64(q.text[k])
		}
		s.filter[s.slot(hash)] = true
	}
	return s
}

// quoteFactor is the factor of a rolling hash: the sum of byte*quoteFactor^position.
const quoteFactor = 0x9e3779b97f4a7c15

func (s *quoteSearch) slot(hash uint64) uint64 { return hash >> 20 & s.mask }

// find returns the different quotes in a text.
func (s *quoteSearch) find(text string) (found []*quote) {
	if len(text) < minQuote {
		return nil
	}
	hash, out := uint64(0), uint64(1) // out is quoteFactor^minQuote
	for range minQuote {
		out *= quoteFactor
	}
	for end := range len(text) {
		hash = hash*quoteFactor + uint64(text[end])
		start := end + 1 - minQuote
		if start > 0 {
			hash -= out * uint64(text[start-1])
		}
		if start < 0 || !s.filter[s.slot(hash)] {
			continue
		}
		// All quotes that are the beginning of rest are the beginning of the greatest quote up to rest.
		rest := text[start:]
		k, equal := slices.BinarySearchFunc(s.quotes, rest, func(q *quote, rest string) int { return strings.Compare(q.text, rest) })
		if !equal {
			k--
		}
		for ; k >= 0; k = s.quotes[k].prefix {
			if q := s.quotes[k]; strings.HasPrefix(rest, q.text) && !slices.Contains(found, q) {
				found = append(found, q)
			}
		}
	}
	return found
}
