package config

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Resolved returns the whole configuration by section. The result is safe to store and show,
// because secrets are replaced by their references.
func (l *Loader) Resolved() map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, s := range l.Settings {
		section, name, _ := strings.Cut(s.Key, ".")
		if out[section] == nil {
			out[section] = map[string]any{}
		}
		v := s.get()
		if sec, ok := v.(Secret); ok {
			v = sec.ref
		}
		out[section][name] = v
	}
	return out
}

// Schema returns the JSON Schema (2020-12) of the configuration file.
func Schema(settings []*Setting) map[string]any {
	sections := map[string]map[string]any{}
	for _, s := range settings {
		section, name, _ := strings.Cut(s.Key, ".")
		if sections[section] == nil {
			sections[section] = map[string]any{}
		}
		sections[section][name] = s.schema()
	}
	props := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		props[name] = map[string]any{"type": "object", "additionalProperties": false, "properties": sections[name]}
	}
	return map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "rollout configuration",
		"type":                 "object",
		"additionalProperties": false,
		"properties":           props,
	}
}

func (s *Setting) schema() map[string]any {
	d := map[string]any{"description": s.doc}
	v := s.get()
	switch v := v.(type) {
	case []string:
		d["type"], d["items"] = "array", map[string]any{"type": "string"}
	case bool:
		d["type"], d["default"] = "boolean", v
	case int64:
		d["type"], d["default"] = "integer", v
	case float64:
		d["type"], d["default"] = "number", v
	case Secret:
		d["type"], d["pattern"] = "string", `^\$\{(env|file):.+\}$`
	case map[string]string:
		d["type"], d["additionalProperties"] = "object", map[string]any{"type": "string"}
	default:
		switch {
		case s.items != nil && s.node == yaml.MappingNode:
			d["type"], d["additionalProperties"] = "object", s.items
			return d
		case s.items != nil:
			d["type"], d["items"] = "array", s.items
			return d
		case s.object != nil:
			d["type"] = "object"
			return d
		}
		d["type"] = "string"
		if s.Key == "run.fail_on_error" || s.Key == "tokens.policy_version" {
			d["type"] = []string{"integer", "string"}
		}
		if v != "" {
			d["default"] = v
		}
	}
	if s.enum != nil {
		d["enum"] = s.enum
	}
	return d
}
