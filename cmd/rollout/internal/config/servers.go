package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector"
)

// A Server is one server of a run, with its own settings. On the command line and in the
// environment, it is a URL that can be followed by options:
//
//	http://10.0.0.5:8283 weight=2 max_in_flight=64
//
// In the configuration file, a server can also be a mapping. Only a mapping can have headers,
// because headers can contain secrets. If a flag or variable contains only the URL of a server, the
// server keeps its settings from the configuration file.
type Server struct {
	URL         string
	Weight      float64 // share of new samples; 0 means 1
	MaxInFlight int     // 0: server.max_in_flight
	Headers     headers // added to server.headers; replaces a header of the same name
}

// InFlight returns the limit on the number of samples in flight at server s.
func (c *Config) InFlight(s *Server) int {
	if s.MaxInFlight > 0 {
		return s.MaxInFlight
	}
	return c.Server.MaxInFlight
}

// HeadersOf returns the headers for requests to server s. It must be called only by code that sends
// the headers.
func (c *Config) HeadersOf(s *Server) http.Header {
	out := c.Server.Headers.Reveal()
	maps.Copy(out, s.Headers.Reveal())
	return out
}

type servers []Server

func (l *servers) setting(key string, getenv func(string) string) *Setting {
	var before servers // servers from sources that were read earlier
	s := structured(key, yaml.SequenceNode, func(raw json.RawMessage) error {
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		*l = make(servers, len(list))
		for i, e := range list {
			if err := (*l)[i].parse(e, getenv); err != nil {
				*l = nil
				return fmt.Errorf("server %d: %w", i+1, err)
			}
		}
		return nil
	}, func() any { return *l })
	s.items, s.texts = serverSchema(), true
	s.reset = func() { before, *l = append(before, *l...), nil }
	s.set = func(text string) error {
		s, err := parseServer(text)
		if err != nil {
			return err
		}
		for i := range before {
			if sameURL(before[i].URL) == sameURL(s.URL) {
				s.inherit(&before[i])
			}
		}
		*l = append(*l, s)
		return nil
	}
	return s
}

// inherit copies, from another server, the settings that s does not set itself.
func (s *Server) inherit(from *Server) {
	s.Weight, s.MaxInFlight = cmp.Or(s.Weight, from.Weight), cmp.Or(s.MaxInFlight, from.MaxInFlight)
	if from.Headers != nil {
		s.Headers = from.Headers
	}
}

func serverSchema() map[string]any {
	text := map[string]any{"type": "string"}
	return map[string]any{"anyOf": []any{text, map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"url"},
		"properties": map[string]any{
			"url":           text,
			"weight":        map[string]any{"type": "number", "minimum": collector.MinWeight, "maximum": collector.MaxWeight, "default": 1},
			"max_in_flight": map[string]any{"type": "integer", "minimum": 1},
			"headers":       map[string]any{"type": "object", "additionalProperties": text},
		},
	}}}
}

func parseServer(text string) (s Server, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return s, nil // check reports an empty URL
	}
	s.URL = words[0]
	given := map[string]bool{}
	for _, word := range words[1:] {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case name == "headers":
			return s, errors.New("headers can contain secrets: set them in the configuration file, where a value can be a reference such as ${env:NAME}")
		case !ok:
			return s, errors.New("unexpected text after the URL (want weight=N or max_in_flight=N)") // omit the text, because it can be a secret
		case given[name]:
			return s, fmt.Errorf("%s is given twice", name)
		}
		given[name] = true
		if err := s.put(name, value); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Server) put(name, value string) (err error) {
	switch name {
	case "weight":
		s.Weight, err = strconv.ParseFloat(value, 64)
		if err != nil || !(s.Weight >= collector.MinWeight && s.Weight <= collector.MaxWeight) {
			return fmt.Errorf("weight: %q is not a number from %v to %v", value, collector.MinWeight, collector.MaxWeight)
		}
		return nil
	case "max_in_flight":
		if err := intSetting("", &s.MaxInFlight, 0, 1).set(value); err != nil {
			return fmt.Errorf("max_in_flight: %w", err)
		}
		return nil
	}
	return unknownWord(name)
}

func unknownWord(name string) error {
	words := []string{"url", "weight", "max_in_flight", "headers"}
	return fmt.Errorf("%s: unknown key%s", name, cmp.Or(format.DidYouMean("; ", name, words), " (want url, weight, max_in_flight or headers)"))
}

// parse parses a server from JSON, either a string or an object.
func (s *Server) parse(raw json.RawMessage, getenv func(string) string) (err error) {
	if text, ok := scalarOf(raw); ok {
		*s, err = parseServer(text)
		return err
	}
	if err := unambiguous(raw); err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return errors.New("must be a URL, or a mapping with a url")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text, single := scalarOf(fields[name])
		switch {
		case string(fields[name]) == "null":
		case name == "headers":
			err = s.Headers.parse(fields[name], getenv)
		case !single:
			err = errors.New("must be a single value")
		case name == "url":
			s.URL = text
		default:
			if err := s.put(name, text); err != nil {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if s.URL == "" {
		return errors.New("url is missing")
	}
	return nil
}

func (l servers) String() string {
	texts := make([]string, len(l))
	for i := range l {
		texts[i] = l[i].String()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (s *Server) String() string {
	text := s.URL
	if s.Weight > 0 {
		text += " weight=" + strconv.FormatFloat(s.Weight, 'g', -1, 64)
	}
	if s.MaxInFlight > 0 {
		text += " max_in_flight=" + strconv.Itoa(s.MaxInFlight)
	}
	if len(s.Headers) > 0 {
		shown, _ := json.Marshal(s.Headers.shown()) // strings can always be encoded
		text += " headers=" + string(shown)
	}
	return text
}

// MarshalJSON encodes the servers for run.json. A server that has no settings of its own is encoded
// as its URL. Header values are omitted unless they are references.
func (l servers) MarshalJSON() ([]byte, error) {
	out := make([]any, len(l))
	for i, s := range l {
		if out[i] = s.URL; s.Weight == 0 && s.MaxInFlight == 0 && len(s.Headers) == 0 {
			continue
		}
		out[i] = struct {
			URL         string            `json:"url"`
			Weight      float64           `json:"weight,omitzero"`
			MaxInFlight int               `json:"max_in_flight,omitzero"`
			Headers     map[string]string `json:"headers,omitempty"`
		}{s.URL, s.Weight, s.MaxInFlight, s.Headers.shown()}
	}
	return format.JSONLine(out)
}
