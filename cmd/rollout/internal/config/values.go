package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
)

// Json is the value as run.json holds it.
func (s *Setting) Json() (json.RawMessage, error) {
	v := s.get()
	if sec, ok := v.(Secret); ok {
		v = sec.ref
	}
	return plainjson.Line(v)
}

// Given says where a setting's value came from; nothing where that is the run.
func (s *Setting) Given() string {
	if s.Origin == OriginDefault || s.Origin == OriginRun {
		return ""
	}
	return " (" + s.Origin + ")"
}

// FromRun fills the settings that nothing else gave from a run, those of one section
// or, where section is empty, all but the folder.
func (l *Loader) FromRun(values Values, section string) {
	for _, s := range l.Settings {
		in, name, _ := strings.Cut(s.Key, ".")
		if s.Origin != OriginDefault || s.Key == "output.dir" || section != "" && in != section {
			continue
		}
		raw := plainjson.Compact(values[in][name])
		if len(raw) == 0 || string(raw) == "null" || string(raw) == `""` {
			continue
		}
		// What sampled in an earlier invocation says nothing of what samples in this one.
		if text, err := strconv.Unquote(string(raw)); s.Key == "tokens.policy_version" && err == nil && ClaimedVersion(text) {
			continue
		}
		// One engine stood behind that page, and made the calls of those servers.
		if s.Key == "tokens.one_engine" && (!l.keeps(values, "tokens", "policy_version") || !l.keeps(values, "server", "urls")) {
			continue
		}
		if err := l.put1(s, raw); err != nil {
			l.Bad = append(l.Bad, fmt.Errorf("%s: %s: %w", OriginRun, s.Key, err))
		}
	}
}

// keeps reports whether a setting is what it was in the run.
func (l *Loader) keeps(values Values, section, name string) bool {
	now, err := l.ByKey[section+"."+name].Json()
	return err == nil && bytes.Equal(plainjson.Compact(now), plainjson.Compact(values[section][name]))
}

// put1 sets a setting from the JSON that run.json holds of it.
func (l *Loader) put1(s *Setting, raw json.RawMessage) error {
	texts := []string{string(raw)}
	switch hidden := bytes.Contains(raw, []byte(`"`+Hidden+`"`)); {
	case raw[0] == '"':
		texts = make([]string, 1)
		if err := json.Unmarshal(raw, &texts[0]); err != nil {
			return err
		}
	case hidden && s.Key == "server.urls":
		return errors.New("the run does not keep the values of headers: give the file again; a reference such as ${env:NAME} is kept")
	case raw[0] == '[' && s.reset != nil && s.object != nil:
		n, err := nodeOf(raw)
		if err == nil {
			err = s.object(n)
		}
		if err != nil {
			return err
		}
		s.Origin = OriginRun
		return nil
	case raw[0] == '[' && s.reset != nil:
		if err := json.Unmarshal(raw, &texts); err != nil {
			return err
		}
	case hidden && s.Key == "server.headers":
		return errors.New("the run does not keep the values of headers: give " + s.env() + ", or the file again; a reference such as ${env:NAME} is kept")
	case hidden && s.Key == "agent.create":
		return errors.New("the run does not keep the secrets of the agent's tools: give " + s.env() + ", or the file again")
	}
	if s.reset != nil {
		s.reset()
	}
	for _, t := range texts {
		if err := s.set(t); err != nil {
			return err
		}
	}
	s.Origin = OriginRun
	return nil
}

// Values is a configuration by section, a secret being its reference. Values
// are kept as they were written: the order of keys in an object may matter.
type Values map[string]map[string]json.RawMessage

// The origins of values that nobody gave: none did, and the run that is continued does.
const (
	OriginDefault = "default"
	OriginRun     = "run.json"
)
