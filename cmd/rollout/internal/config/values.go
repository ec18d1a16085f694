package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// Json returns the value as stored in run.json.
func (s *Setting) Json() (json.RawMessage, error) {
	v := s.get()
	if sec, ok := v.(Secret); ok {
		v = sec.ref
	}
	return format.JSONLine(v)
}

// Given returns " (origin)" for a value that this invocation set, and "" for any other value.
func (s *Setting) Given() string {
	if slices.Contains([]string{OriginDefault, OriginRun, originFleet}, s.Origin) {
		return ""
	}
	return " (" + s.Origin + ")"
}

// FromRun sets every setting that still has its default to the value from an earlier invocation of
// the run. Without sections, it sets all settings except output.dir. Otherwise it sets only the
// settings in these sections.
func (l *Loader) FromRun(values Values, sections ...string) { l.from(OriginRun, values, sections) }

// FromFleet is like FromRun, but for the settings with which a fleet was planned.
func (l *Loader) FromFleet(values Values, sections ...string) { l.from(originFleet, values, sections) }

func (l *Loader) from(origin string, values Values, sections []string) {
	for _, s := range l.Settings {
		in, name, _ := strings.Cut(s.Key, ".")
		if s.Origin != OriginDefault || s.Key == "output.dir" || len(sections) > 0 && !slices.Contains(sections, in) {
			continue
		}
		raw := format.CompactJSON(values[in][name])
		if len(raw) == 0 || string(raw) == "null" || string(raw) == `""` {
			continue
		}
		// A version claimed for an earlier invocation does not apply to this invocation.
		if text, err := strconv.Unquote(string(raw)); s.Key == "tokens.policy_version" && err == nil && ClaimedVersion(text) {
			continue
		}
		// tokens.one_engine is a claim that holds only for the same page and the same servers.
		if s.Key == "tokens.one_engine" && (!l.keeps(values, "tokens", "policy_version") || !l.keeps(values, "server", "urls")) {
			continue
		}
		if err := l.setJSON(s, raw); err != nil {
			l.Bad = append(l.Bad, fmt.Errorf("%s: %s: %w", origin, s.Key, err))
		} else {
			s.Origin = origin
		}
	}
}

// keeps reports whether a setting has the same value as in the earlier invocation.
func (l *Loader) keeps(values Values, section, name string) bool {
	now, err := l.ByKey[section+"."+name].Json()
	return err == nil && bytes.Equal(format.CompactJSON(now), format.CompactJSON(values[section][name]))
}

// setJSON sets a setting from its JSON value in run.json or fleet.json. It does not set the origin.
func (l *Loader) setJSON(s *Setting, raw json.RawMessage) (err error) {
	texts := []string{string(raw)}
	switch hidden := bytes.Contains(raw, []byte(`"`+Hidden+`"`)); {
	case hidden && s.Key == "server.urls":
		return errors.New("the run stores only references such as ${env:NAME}, not the values of headers: pass the configuration file again")
	case hidden && s.Key == "server.headers":
		return errors.New("the run stores only references such as ${env:NAME}, not the values of headers: pass " + s.env() + " or the configuration file again")
	case hidden && s.Key == "agent.create":
		return errors.New("the run does not store the secrets of the agent's tools: pass " + s.env() + ", or the configuration file again")
	case s.object != nil:
		texts, err = nil, s.object(raw)
	case raw[0] == '"':
		texts = make([]string, 1)
		err = json.Unmarshal(raw, &texts[0])
	case raw[0] == '[':
		err = json.Unmarshal(raw, &texts)
	}
	if err != nil {
		return err
	}
	if s.reset != nil && s.object == nil {
		s.reset()
	}
	for _, t := range texts {
		if err := s.set(t); err != nil {
			return err
		}
	}
	return nil
}

// Values is a configuration by section, with references in place of secrets. The JSON of each value
// is kept unchanged, because the order of an object's keys can matter.
type Values map[string]map[string]json.RawMessage

// Origins of values that this invocation did not set: the default, the run that is resumed, or the fleet
// for which a worker collects.
const (
	OriginDefault = "default"
	OriginRun     = "run.json"
	originFleet   = "fleet.json"
)
