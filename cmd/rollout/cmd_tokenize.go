package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// tokenizeOptions contains the flags that the three verbs share.
type tokenizeOptions struct {
	dir, transformers           string
	experimental, table, asJSON bool
}

func (o *tokenizeOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.dir, "tokenizer", "", "the `DIR` with the model's tokenizer.json (or .gz, .zst) and chat template")
	addTransformers(cmd, &o.transformers, "")
	f.BoolVar(&o.experimental, "experimental", false, "accept a tokenizer whose vocabulary has not been compared with the reference implementation")
	f.BoolVar(&o.table, "table", false, "print one line per token: index, id, byte offset, text")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
}

func (o *tokenizeOptions) load() (*bpe.Tokenizer, error) {
	if o.dir == "" {
		return nil, exit.Hint(exit.Usagef("tokenize: --tokenizer is required"), "pass the model's folder with --tokenizer DIR")
	}
	if o.table && o.asJSON {
		return nil, exit.Usagef("--table and --json cannot be used together")
	}
	_, releases, err := parseTransformers("tokenize", o.transformers)
	if err != nil {
		return nil, err
	}
	return model.LoadTokenizer("--tokenizer", o.dir, o.experimental, releases)
}

func (p *program) tokenizeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokenize",
		Short: "encode, decode and render with a model's own files",
		Long: `Encode, decode and render with a model's own tokenizer and chat template. The output is
identical to the output of the model's own library. collect rebuilds prompts the same way.`,
		Example: `  rollout tokenize encode --tokenizer models/qwen3 'Hello, world'
  rollout tokenize encode --tokenizer models/qwen3 <text | rollout tokenize decode --tokenizer models/qwen3
  rollout tokenize render --tokenizer models/qwen3 conversation.json --ids`,
		Args: cobra.ArbitraryArgs,
		RunE: needVerb,
	}
	cmd.AddCommand(p.encodeCmd(), p.decodeCmd(), p.renderCmd())
	return cmd
}

const tokenizeExits = "Exit status: 0 done, 2 invalid input or an unusable tokenizer or template."

func (p *program) encodeCmd() *cobra.Command {
	var o tokenizeOptions
	var noSpecial, postProcess bool
	cmd := &cobra.Command{
		Use:   "encode [TEXT …]",
		Short: "print the token ids of text",
		Long: `Print the token ids of the arguments, joined with spaces, or of all of standard input,
including a final line break.

Special tokens in the text are recognized, as in a rendered chat template. Use
--no-special for text that must not contain any, such as a tool result.`,
		Annotations: exits(tokenizeExits),
		Example:     "  rollout tokenize encode --tokenizer models/qwen3 --table '<|im_start|>user'",
		Args:        cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			tok, err := o.load()
			if err != nil {
				return err
			}
			text, err := p.textOf(args)
			if err != nil {
				return err
			}
			opts := bpe.EncodeOptions{PostProcess: postProcess}
			if noSpecial {
				opts.Added = bpe.AddedNone
			}
			ids, err := tok.AppendTokensWith([]int32{}, text, opts)
			if err != nil {
				return exit.Usagef("tokenize encode: %w", err)
			}
			return p.printIDs(tok, ids, &o)
		},
	}
	cmd.Flags().BoolVar(&noSpecial, "no-special", false, "treat special tokens as plain text; use this for untrusted text")
	cmd.Flags().BoolVar(&postProcess, "post-process", false, "add the tokens of the post-processor, such as <|begin_of_text|>")
	o.addFlags(cmd)
	return cmd
}

func (p *program) decodeCmd() *cobra.Command {
	var o tokenizeOptions
	var skipSpecial bool
	cmd := &cobra.Command{
		Use:   "decode [ID …]",
		Short: "print the text of token ids",
		Long: `Print the text of token ids. The ids are the arguments or standard input, as a JSON list
or as numbers separated by spaces or commas. Invalid UTF-8 becomes U+FFFD. No line break is
added.`,
		Annotations: exits(tokenizeExits),
		Example:     "  rollout tokenize decode --tokenizer models/qwen3 9707 11 1879",
		Args:        cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			tok, err := o.load()
			if err != nil {
				return err
			}
			text, err := p.textOf(args)
			if err != nil {
				return err
			}
			ids, err := parseIDs(text)
			if err != nil {
				return exit.Usagef("tokenize decode: %w", err)
			}
			if skipSpecial {
				ids = slices.DeleteFunc(ids, tok.IsSpecial)
			}
			b, err := tok.AppendText(nil, ids, bpe.DecodeOptions{})
			if err != nil {
				return exit.Usagef("tokenize decode: %w", err)
			}
			if o.table {
				return p.printIDs(tok, ids, &o)
			}
			return p.printText(b, nil, &o)
		},
	}
	cmd.Flags().BoolVar(&skipSpecial, "skip-special", false, "omit special tokens")
	o.addFlags(cmd)
	return cmd
}

func (p *program) renderCmd() *cobra.Command {
	var o tokenizeOptions
	var noGeneration, asIDs bool
	var name, keepOpen string
	cmd := &cobra.Command{
		Use:   "render [FILE]",
		Short: "render a conversation with the chat template",
		Long: `Render a conversation with the chat template. The conversation is FILE or standard input:
a JSON list of messages, or an object with messages and, optionally, tools, documents and
variables for the template.

If a model has named templates, tool_use is the default for conversations with tools and
default for all others; --template chooses another.

--continue-final-message leaves the final message open, like apply_chat_template: the
text ends after its content, and the model continues there. With =KEY it ends after the
value of that key.`,
		Annotations: exits(tokenizeExits),
		Example: `  echo '[{"role":"user","content":"Hi"}]' | rollout tokenize render --tokenizer models/qwen3
  rollout tokenize render --tokenizer models/qwen3 conversation.json --ids
  rollout tokenize render --tokenizer models/qwen3 conversation.json --continue-final-message`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactArgs("FILE")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if keepOpen == "" && cmd.Flags().Changed("continue-final-message") {
				return exit.Usagef("tokenize render: --continue-final-message= has an empty key")
			}
			tok, err := o.load()
			if err != nil {
				return err
			}
			templates, err := model.LoadTemplates("--tokenizer", o.dir)
			if err != nil {
				return err
			}
			from, b := "standard input", []byte(nil)
			if len(args) == 1 && args[0] != "-" {
				from = args[0]
				b, err = input.Read(from, input.MaxModelFile, input.Wait)
			} else {
				b, err = io.ReadAll(p.stdin)
			}
			if err != nil {
				return exit.Usagef("tokenize render: %w", err)
			}
			in, err := parseConversation(b)
			if err != nil {
				return exit.Usagef("tokenize render: %s: %w", from, err)
			}
			in.AddGenerationPrompt, in.ContinueFinalMessage = !noGeneration && keepOpen == "", keepOpen
			in.Transformers, _, _ = parseTransformers("tokenize", o.transformers) // cannot fail, because load has checked the name
			template := templates.For(len(in.Tools.Items()) > 0)
			if name != "" {
				template = templates.Named(name)
			}
			if template == nil {
				return exit.Hint(exit.Usagef("tokenize render: no template named %q", cmp.Or(name, chat.DefaultName)), "the names are "+strings.Join(templates.Names(), ", "))
			}
			var asked []string
			in.Now, in.Formats = time.Now(), &asked
			text, err := template.Render(nil, in)
			if err != nil {
				return exit.Usagef("tokenize render: %w", err)
			}
			if len(asked) > 0 {
				termsafe.Fprintf(p.stderr, "note: the template reads the clock; it was rendered with this machine's time\n")
			}
			ids, err := tok.AppendTokens([]int32{}, string(text))
			if err != nil {
				return exit.Usagef("tokenize render: %w", err)
			}
			if asIDs || o.table {
				return p.printIDs(tok, ids, &o)
			}
			return p.printText(text, ids, &o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&noGeneration, "no-generation-prompt", false, "omit the start of the model's turn")
	f.StringVar(&keepOpen, "continue-final-message", "", "leave the final message open: end after its content, or after the value of another `KEY`")
	f.Lookup("continue-final-message").NoOptDefVal = "content"
	f.BoolVar(&asIDs, "ids", false, "print ids instead of text")
	f.StringVar(&name, "template", "", "the `NAME` of the template, if the model has several")
	o.addFlags(cmd)
	return cmd
}

// addTransformers adds the flag --transformers. The parameter purpose completes the first sentence
// of the flag's help.
func addTransformers(cmd *cobra.Command, to *string, purpose string) {
	cmd.Flags().StringVar(to, "transformers", "", "the `VERSION` of the server's transformers library"+purpose+" ("+strings.Join(releaseNames(), ", ")+"). Choose the newest listed version that is not newer than the server's. By default, all listed versions must load the same tokenizer, and templates render as in 4.57")
	values(cmd, "transformers", cobra.ShellCompDirectiveNoFileComp, releaseNames()...)
}

func releaseNames() (names []string) {
	for _, r := range chat.AllTransformers() {
		names = append(names, r.String())
	}
	return names
}

// parseTransformers parses the name of a version of the transformers library. The first result is
// the version for rendering templates, and the second lists the versions for loading the tokenizer.
// If the name is empty, the first result is the oldest supported version, and the second is nil,
// which means all versions.
func parseTransformers(verb, text string) (chat.Transformers, []chat.Transformers, error) {
	if text == "" {
		return chat.Transformers457, nil, nil
	}
	for _, release := range chat.AllTransformers() {
		if release.String() == text {
			return release, []chat.Transformers{release}, nil
		}
	}
	return 0, nil, exit.Hint(exit.Usagef("%s: --transformers: %q is not one of %s", verb, text, strings.Join(releaseNames(), ", ")), "use the newest listed release that is not newer than the server's, such as 5.21 for 5.22.1")
}

// textOf joins the arguments with spaces. If there are no arguments, it reads standard input.
func (p *program) textOf(args []string) (string, error) {
	if len(args) > 0 {
		return strings.Join(args, " "), nil
	}
	b, err := io.ReadAll(p.stdin)
	return string(b), err
}

// parseIDs parses token ids: a JSON list, or numbers separated by commas or white space.
func parseIDs(text string) ([]int32, error) {
	ids := []int32{}
	if t := strings.TrimSpace(text); strings.HasPrefix(t, "[") {
		if err := json.Unmarshal([]byte(t), &ids); err != nil {
			return nil, fmt.Errorf("not a JSON list of ids: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
		return ids, nil
	}
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || strings.ContainsRune(" \t\r\n", r) }) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt32 {
			return nil, fmt.Errorf("id %d: %q is not a token id", i, termsafe.Text(word, 24))
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

func parseConversation(b []byte) (chat.Input, error) {
	v, err := chat.FromJSON(bytes.TrimSpace(b))
	if err != nil {
		return chat.Input{}, err
	}
	in := chat.Input{Messages: v}
	if m := v.Map(); m != nil {
		in.Messages = chat.Value{}
		for i := range m.Len() {
			key, value := m.At(i)
			switch name, _ := key.Text(); name {
			case "messages":
				in.Messages = value
			case "tools":
				in.Tools = value
			case "documents":
				in.Documents = value
			case "variables":
				if in.Extra = value.Map(); in.Extra == nil {
					return in, fmt.Errorf("variables: must be an object")
				}
			default:
				return in, fmt.Errorf("%q: unknown key; the keys are messages, tools, documents, variables", name)
			}
		}
	}
	if in.Messages.Kind() != chat.List {
		return in, fmt.Errorf("messages: must be a list")
	}
	if k := in.Tools.Kind(); k != chat.List && k != chat.None && k != chat.Undefined {
		return in, fmt.Errorf("tools: must be a list")
	}
	if k := in.Tools.Kind(); k == chat.None || k == chat.List && len(in.Tools.Items()) == 0 {
		in.Tools = chat.Value{} // as if the server had sent no tools
	}
	return in, nil
}

func (p *program) printIDs(tok *bpe.Tokenizer, ids []int32, o *tokenizeOptions) error {
	switch {
	case o.asJSON:
		return p.printJSON(ids)
	case o.table:
		spell := model.SpellerOf(tok)
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		termsafe.Fprintf(w, "token\tid\toffset\ttext\n")
		at := 0
		for i, id := range ids {
			b, err := tok.Bytes(id)
			if err != nil {
				return exit.Usagef("tokenize: %w", err)
			}
			special := ""
			if tok.IsSpecial(id) {
				special = "  (special)"
			}
			termsafe.Fprintf(w, "%d\t%d\t%d\t%s%s\n", i, id, at, spell(id), special)
			at += len(b)
		}
		return w.Flush()
	}
	out := make([]byte, 0, 7*len(ids))
	for i, id := range ids {
		if i > 0 {
			out = append(out, ' ')
		}
		out = strconv.AppendInt(out, int64(id), 10)
	}
	_, err := p.stdout.Write(append(out, '\n'))
	return err
}

// printText prints text unchanged. On a terminal, it escapes control characters and adds a line
// break.
func (p *program) printText(text []byte, ids []int32, o *tokenizeOptions) error {
	if o.asJSON {
		out := map[string]any{"text": string(text)}
		if ids != nil {
			out["ids"] = ids
		}
		return p.printJSON(out)
	}
	out := termsafe.Raw(p.stdout)
	if f, ok := termsafe.File(p.stdout); ok && term.IsTerminal(int(f.Fd())) {
		text, out = append(text, '\n'), p.stdout
	}
	_, err := out.Write(text)
	return err
}
