package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

func (p *program) configCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "show, check and describe the configuration",
		Long: `Show, check and describe the configuration.

A value is taken from the first of these that gives it: a flag, the environment
(server.max_in_flight is ROLLOUT_SERVER_MAX_IN_FLIGHT), the file of -c, the default.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownVerb(cmd, args[0])
		},
	}
	cmd.AddCommand(p.configShowCmd(), p.configCheckCmd(), p.configSchemaCmd())
	return cmd
}

func (p *program) configShowCmd() *cobra.Command {
	var origin, asJSON bool
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "print the configuration that collect would use",
		Example: "  rollout config show -c run.yaml --origin",
		Args:    exactArgs(),
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	load := addConfigFlags(cmd, p.getenv, p.environ)
	cmd.RunE = func(*cobra.Command, []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		if err := l.err(); err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(p.stdout).Encode(l.resolved())
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		for _, s := range l.settings {
			if origin {
				tame.Fprintf(w, "%s\t%s\t%s\n", s.key, s.text(), s.origin)
			} else {
				tame.Fprintf(w, "%s\t%s\n", s.key, s.text())
			}
		}
		return w.Flush()
	}
	return cmd
}

func (p *program) configCheckCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "report everything that is wrong with a configuration",
		Long: `Report everything that is wrong with a configuration, all at once. No server is
asked and nothing is written.`,
		Annotations: exits("Exit status: 0 nothing is wrong, 2 something is."),
		Example:     "  rollout config check -c run.yaml",
		Args:        exactArgs(),
	}
	load := addConfigFlags(cmd, p.getenv, p.environ)
	cmd.RunE = func(*cobra.Command, []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		if len(l.bad) == 0 {
			l.bad = l.config.checkComplete()
		}
		if err := l.err(); err != nil {
			return err
		}
		tame.Fprintf(p.stdout, "ok\n")
		return nil
	}
	return cmd
}

func (p *program) configSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the configuration file's JSON Schema",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			enc := json.NewEncoder(p.stdout)
			enc.SetIndent("", "  ")
			enc.SetEscapeHTML(false)
			return enc.Encode(schema(newLoader(p.getenv).settings))
		},
	}
}

// resolved is the whole configuration, section by section, as it may be stored
// and shown: a secret is its reference.
func (l *loader) resolved() map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, s := range l.settings {
		section, name, _ := strings.Cut(s.key, ".")
		if out[section] == nil {
			out[section] = map[string]any{}
		}
		v := s.get()
		if sec, ok := v.(secret); ok {
			v = sec.ref
		}
		out[section][name] = v
	}
	return out
}

// schema describes the file as JSON Schema 2020-12.
func schema(settings []*setting) map[string]any {
	sections := map[string]map[string]any{}
	for _, s := range settings {
		section, name, _ := strings.Cut(s.key, ".")
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

// schema describes the value of one setting.
func (s *setting) schema() map[string]any {
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
	case secret:
		d["type"], d["pattern"] = "string", `^\$\{(env|file):.+\}$`
	case map[string]string:
		d["type"], d["additionalProperties"] = "object", map[string]any{"type": "string"}
	default:
		switch {
		case s.items != nil:
			d["type"], d["items"] = "array", s.items
			return d
		case s.object != nil:
			d["type"] = "object"
			return d
		}
		d["type"] = "string"
		if s.number {
			d["type"] = "number"
			break
		}
		if s.key == "run.fail_on_error" {
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
