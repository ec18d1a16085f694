package session

import (
	"cmp"
	"math"
	"math/bits"
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
	within int64   // the time when the first other answer that contains text ended, in Unix nanoseconds
	sent   int64   // the time when the first request with a message that contains text began
}

// until returns the time when the second answer that contains the text ended.
func (q *quote) until() int64 {
	if len(q.calls) > 1 {
		return min(q.within, q.calls[1].ended)
	}
	return q.within
}

// findQuotes sets b.quotes and call.quoted. An answer is quoted if a message contains its text, the
// answer had ended when the message was first sent, and no other answer and no earlier message
// contained this text by then. A repeated answer often contains the text of the lost answer, and an
// answer can be a copy of a message.
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
				q.sent = min(q.sent, c.began)
				if c.began < q.until() {
					q.calls[0].quoted = true
				}
			}
		}
	}
	for _, q := range s.quotes {
		if q.sent < q.calls[0].ended {
			q.calls[0].quoted = false
		}
	}
}

// A quoteSearch finds all quotes in a text. Its time does not depend on the number of quotes.
type quoteSearch struct {
	quotes []*quote // sorted by text
	filter []bool   // by the slot of the first minQuote bytes of a quote; the length is a power of two
}

// newQuoteSearch searches for the answers that end a conversation. Other answers are messages of a
// later request.
func newQuoteSearch(calls []*call) *quoteSearch {
	byText := map[string]*quote{}
	for _, c := range calls {
		if t := c.answer.text; len(t) >= minQuote && (len(c.readers) == 0 || !c.answer.called()) {
			byText[t] = &quote{text: t, prefix: -1, within: math.MaxInt64, sent: math.MaxInt64}
		}
	}
	for _, c := range calls {
		if q := byText[c.answer.text]; q != nil {
			q.calls = append(q.calls, c)
		}
	}
	s := &quoteSearch{filter: make([]bool, 1<<bits.Len(uint(64*len(byText))))}
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
	s.setWithin(calls)
	return s
}

// setWithin sets quote.within.
func (s *quoteSearch) setWithin(calls []*call) {
	ended := [2]map[string]int64{{}, {}} // by text: when the first answer with this text ended, and the first one with these arguments
	add := func(ended map[string]int64, text string, at int64) {
		if old, ok := ended[text]; !ok || at < old {
			ended[text] = at
		}
	}
	for _, c := range calls {
		add(ended[0], c.answer.text, c.ended)
		for _, u := range c.answer.uses {
			add(ended[1], u.arguments, c.ended)
			add(ended[1], u.written, c.ended)
		}
	}
	for i := range ended {
		for text, at := range ended[i] {
			for _, q := range s.find(text) {
				if i == 1 || q.text != text {
					q.within = min(q.within, at)
				}
			}
		}
	}
}

// quoteFactor is the factor of a rolling hash: the sum of byte*quoteFactor^position.
const quoteFactor = 0x9e3779b97f4a7c15

func (s *quoteSearch) slot(hash uint64) uint64 { return hash >> 20 & uint64(len(s.filter)-1) }

// find returns the different quotes in a text. If the text repeats itself so often that the search
// would take too long, it returns only some of them.
func (s *quoteSearch) find(text string) (found []*quote) {
	if len(text) < minQuote || len(s.quotes) == 0 {
		return nil
	}
	hash, out := uint64(0), uint64(1) // out is quoteFactor^minQuote
	for range minQuote {
		out *= quoteFactor
	}
	work := maxQuoteWork * len(text)
	for end := 0; end < len(text) && work > 0; end++ {
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
		k, equal := slices.BinarySearchFunc(s.quotes, rest, func(q *quote, rest string) int { return compare(q.text, rest, &work) })
		if !equal {
			k--
		}
		for ; k >= 0 && work > 0; k = s.quotes[k].prefix {
			work -= minQuote + len(found)
			q := s.quotes[k]
			if n := min(len(q.text), len(rest)); n == len(q.text) && compare(q.text, rest[:n], &work) == 0 && !slices.Contains(found, q) {
				found = append(found, q)
			}
		}
	}
	return found
}

// maxQuoteWork is how many bytes find compares for each byte of a text. Ordinary texts need less than
// one tenth.
const maxQuoteWork = 64

// compare is like [strings.Compare]. It subtracts the number of bytes that it compared from work.
func compare(x, y string, work *int) int {
	const block = 64
	for *work -= block; len(x) > block && len(y) > block && x[:block] == y[:block]; *work -= block {
		x, y = x[block:], y[block:]
	}
	return strings.Compare(x, y)
}
