package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
)

// Run polls the page until ctx is done, and then returns nil. It makes one request at a time, so
// the answers are in order. Without a page, Run only waits until ctx is done. Call Run once.
//
// If the function seen is not nil, Run calls it with the first number on the page and with each
// higher number. It does so as long as the page can prove versions. The function must not block.
func (s *Source) Run(ctx context.Context, seen func(version int32)) error {
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running = false
		s.resolve(func(*Span) bool { return true }, Unknown)
		s.mu.Unlock()
	}()
	if s.cfg.URL != "" && !s.cfg.OneEngine {
		s.notice("engines", "policy version: the page %s proves no version without --one-engine, so versions come only from traces. "+
			"Set --one-engine if the engine behind this page handles all calls", s.cfg.Name)
	}
	for s.cfg.URL != "" && ctx.Err() == nil {
		a := s.request(ctx)
		if ctx.Err() != nil {
			break
		}
		higher, useful := s.process(a)
		if higher && seen != nil {
			seen(a.version)
		}
		if !useful || !s.cfg.OneEngine {
			break
		}
		s.waitNext(ctx)
	}
	<-ctx.Done()
	return nil
}

// waitNext waits until the next request is due. It waits for Every, or less if a send waits for an
// answer and Gap allows an earlier request.
func (s *Source) waitNext(ctx context.Context) {
	for {
		s.mu.Lock()
		next := s.asked.Add(s.cfg.Every)
		for _, sp := range s.pending {
			if soon := later(sp.from, s.asked.Add(s.cfg.Gap)); soon.Before(next) {
				next = soon
			}
		}
		s.mu.Unlock()
		if wait.For(ctx, time.Until(next), s.nudge) || ctx.Err() != nil {
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// process handles an answer from the page. It reports whether the page proves a higher version than
// before, and whether the page can still prove something.
func (s *Source) process(a answer) (higher, useful bool) {
	s.mu.Lock()
	fell := a.version != Unknown && a.version < s.highest
	before := s.highest
	switch {
	case s.discredited: // a trace has contradicted the page in the meantime
	case fell:
		s.giveUp()
	default:
		if a.version == Unknown {
			// The engine might have been restarted with other weights.
			s.gaps++
			s.answers = nil
		}
		// A send that ended after the request began waits for the next request.
		s.resolve(func(sp *Span) bool { return !a.began.Before(sp.from) }, a.version)
		if a.version != Unknown {
			s.highest = a.version
			s.answers = append(s.answers, a)
			s.forget(a.ended.Add(-s.cfg.Delay))
		}
	}
	useful = !s.discredited
	higher = useful && s.cfg.OneEngine && a.version > before // Unknown is less than any version
	select {
	case <-s.first:
	default:
		close(s.first)
	}
	s.mu.Unlock()
	switch {
	case fell:
		s.notice("fell", "policy version: the version at %s fell from %d to %d. A version that falls is not reliable, so the page is no longer polled", s.cfg.Name, before, a.version)
	case a.err != nil:
		s.notice("unreachable", "policy version: %s: %v. Versions are unknown until the page answers", s.cfg.Name, a.err)
	case a.version == Unknown:
		s.notice("word", "policy version: %s returned %q, not a number. Versions are unknown until the trainer sets a number", s.cfg.Name, a.word)
	}
	return higher, useful
}

// forget drops the answers that no send needs. It keeps the newest answer that ended no later than
// the given time, and all later answers. The caller must hold Source.mu.
func (s *Source) forget(then time.Time) {
	for len(s.answers) > 1 && !s.answers[1].ended.After(then) {
		s.answers = s.answers[1:]
	}
}

// maxPage bounds the number of bytes read from a page.
const maxPage = 1 << 20

func (s *Source) request(ctx context.Context) (a answer) {
	a.version = Unknown
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	for {
		a.began = time.Now()
		s.mu.Lock()
		s.asked = a.began
		s.mu.Unlock()
		var body []byte
		var status int
		status, body, a.err = s.get(ctx, s.pages[0])
		a.ended = time.Now()
		switch {
		case a.err != nil:
			return a
		case status == http.StatusNotFound && len(s.pages) > 1:
			s.pages = s.pages[1:]
			continue
		case status != http.StatusOK:
			a.err = fmt.Errorf("status %d", status)
			return a
		}
		s.pages = s.pages[:1]
		a.version, a.word, a.err = number(body, s.path)
		return a
	}
}

func (s *Source) get(ctx context.Context, page *url.URL) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), nil)
	if err != nil {
		return 0, nil, errors.New("invalid URL")
	}
	request.Header.Set("Accept", "application/json, text/plain")
	request.Header.Set("Cache-Control", "no-cache") // a cached answer proves nothing
	response, err := s.cfg.Client.Do(request)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the rest of the text repeats the address
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", s.cfg.Patience)
		}
		return 0, nil, err
	}
	defer response.Body.Close() //nolint:errcheck // the body was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPage+1))
	if err == nil && len(body) > maxPage {
		err = fmt.Errorf("the answer is longer than %d bytes", maxPage)
	}
	return response.StatusCode, body, err
}

func members(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// defaultMembers are the members that can contain the version if no path is given. SGLang uses the
// first.
var defaultMembers = []string{"weight_version", "policy_version"}

// number parses the version on a page. If the page contains a word instead of a number, number
// returns Unknown and the word.
func number(body []byte, path []string) (version int32, word string, err error) {
	body = bytes.TrimSpace(body)
	value := json.RawMessage(body)
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) == nil && object != nil {
		names := path
		if names == nil {
			for _, name := range defaultMembers {
				if _, there := object[name]; there {
					names = []string{name}
					break
				}
			}
		}
		if names == nil {
			return Unknown, "", errors.New("the page has no member weight_version or policy_version; name another member in the URL fragment (#member)")
		}
		for i, name := range names {
			var in map[string]json.RawMessage
			if json.Unmarshal(value, &in) != nil || in[name] == nil {
				return Unknown, "", fmt.Errorf("the page has no member %s", strings.Join(names[:i+1], "."))
			}
			value = in[name]
		}
	} else if path != nil {
		return Unknown, "", fmt.Errorf("the page is not a JSON object with member %s", strings.Join(path, "."))
	}
	text := string(value)
	var quoted string
	if strings.HasPrefix(text, `"`) && json.Unmarshal(value, &quoted) == nil {
		text = strings.TrimSpace(quoted)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 && n <= math.MaxInt32 {
		return int32(n), "", nil
	}
	return Unknown, shortened(text), nil // a word is an answer, not a failure
}

func shortened(text string) string {
	const most = 40
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}
