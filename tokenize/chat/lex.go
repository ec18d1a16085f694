package chat

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The lexer splits a template into tokens by the rules of Jinja with trim_blocks and lstrip_blocks
// on. It removes a newline after a block or a comment. It also removes the white space between the
// start of a line and a block or a comment.

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

type token struct {
	kind tokenKind
	text string // for a string, the unescaped text
	line int
}

var tokenNames = [...]string{
	tokEOF:        "the end of the template",
	tokData:       "text",
	tokVarBegin:   "'{{'",
	tokVarEnd:     "'}}'",
	tokBlockBegin: "'{%'",
	tokBlockEnd:   "'%}'",
	tokString:     "a string",
	tokOp:         "",
}

func (t token) describe() string { return cmp.Or(tokenNames[t.kind], "'"+t.text+"'") }

type lexer struct {
	src  string
	pos  int
	line int
	// lineStarting is true if the last tag or comment ended with a newline. The next text then
	// starts a line.
	lineStarting bool
	open         []byte // open brackets
	out          []token
}

func lex(src string) ([]token, int, error) {
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	src = strings.TrimSuffix(src, "\n") // keep_trailing_newline is off
	l := &lexer{src: src, line: 1, lineStarting: true, out: make([]token, 0, len(src)/4+8)}
	for l.pos < len(src) {
		if err := l.root(); err != nil {
			return nil, l.line, err
		}
	}
	l.emit(tokEOF, "")
	return l.out, l.line, nil
}

func (l *lexer) emit(k tokenKind, text string) {
	l.out = append(l.out, token{k, text, l.line})
}

func (l *lexer) advance(pos int) {
	l.line += strings.Count(l.src[l.pos:pos], "\n")
	l.pos = pos
}

// root reads the text up to the next tag, and then the tag.
func (l *lexer) root() error {
	begin := l.pos
	open := nextTag(l.src, begin)
	if open < 0 {
		l.emit(tokData, l.src[begin:])
		l.advance(len(l.src))
		return nil
	}
	text := l.src[begin:open]
	kind := l.src[open+1]
	after := open + 2
	var sign byte
	if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
		sign = l.src[after]
		after++
	}
	if text = l.stripText(text, sign, kind == '{'); text != "" {
		l.emit(tokData, text)
	}
	l.advance(open)
	l.lineStarting = false
	switch kind {
	case '#':
		return l.comment(after)
	case '{':
		l.emit(tokVarBegin, "")
	default:
		if begin := rawBegin.FindString(l.src[after:]); begin != "" {
			return l.raw(after + len(begin))
		}
		l.emit(tokBlockBegin, "")
	}
	l.advance(after)
	return l.tag(kind == '{')
}

func nextTag(src string, from int) int {
	for {
		i := strings.IndexByte(src[from:], '{')
		if i < 0 || from+i+1 >= len(src) {
			return -1
		}
		from += i
		switch src[from+1] {
		case '{', '%', '#':
			return from
		}
		from++
	}
}

// stripText applies the white space control of a tag to the text before it.
func (l *lexer) stripText(text string, sign byte, variable bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || variable:
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.lineStarting) && strings.TrimLeftFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

func (l *lexer) comment(from int) error {
	i := strings.Index(l.src[from:], "#}")
	if i < 0 {
		return fmt.Errorf("unterminated comment")
	}
	end := from + i
	if end > from && (l.src[end-1] == '-' || l.src[end-1] == '+') {
		end--
	}
	next, _ := l.tagEnd(end, "#}")
	l.finish(next)
	return nil
}

// tagEnd reports whether a tag ends at pos, and returns the position after the end of the tag.
func (l *lexer) tagEnd(pos int, end string) (int, bool) {
	rest := l.src[pos:]
	switch {
	case strings.HasPrefix(rest, "-") && strings.HasPrefix(rest[1:], end):
		pos += 1 + len(end)
		return pos + len(l.src[pos:]) - len(strings.TrimLeftFunc(l.src[pos:], isSpace)), true
	case end != "}}" && strings.HasPrefix(rest, "+") && strings.HasPrefix(rest[1:], end):
		return pos + 1 + len(end), true
	case strings.HasPrefix(rest, end):
		pos += len(end)
		if end != "}}" && pos < len(l.src) && l.src[pos] == '\n' {
			pos++
		}
		return pos, true
	}
	return 0, false
}

func (l *lexer) finish(next int) {
	l.lineStarting = l.src[next-1] == '\n'
	l.advance(next)
}

// spaces is the equivalent of \s* in Python: it matches any number of characters for which isSpace
// is true.
const spaces = `[\t-\r\x1c-\x1f\x85\p{Z}]*`

var (
	rawBegin = regexp.MustCompile(`^` + spaces + `raw` + spaces + `(?:-%\}` + spaces + `|%\})`)
	rawEnd   = regexp.MustCompile(`\{%([-+]?)` + spaces + `endraw` + spaces + `(?:\+%\}|-%\}` + spaces + `|%\}\n?)`)
)

// raw reads the text of a raw block and the end of the block.
func (l *lexer) raw(from int) error {
	l.finish(from)
	rest := l.src[from:]
	end := rawEnd.FindStringSubmatchIndex(rest)
	if end == nil {
		return fmt.Errorf("unterminated raw block")
	}
	if text := l.stripText(rest[:end[0]], rest[end[3]-1], false); text != "" { // the sign byte is % if there is no sign
		l.emit(tokData, text)
	}
	l.finish(from + end[1])
	return nil
}

// operators lists the two-byte operators. The other operators are the single bytes in
// operatorBytes.
var operators = [...]string{"**", "//", "==", "!=", "<=", ">="}

const operatorBytes = "+-*/%~<>=.,:|()[]{};"

// tag reads the tokens inside a tag and the end of the tag.
func (l *lexer) tag(variable bool) error {
	end, endKind := "%}", tokBlockEnd
	if variable {
		end, endKind = "}}", tokVarEnd
	}
	l.open = l.open[:0]
	for l.pos < len(l.src) {
		if len(l.open) == 0 {
			if next, ok := l.tagEnd(l.pos, end); ok {
				l.emit(endKind, "")
				l.finish(next)
				return nil
			}
		}
		rest := l.src[l.pos:]
		if trimmed := strings.TrimLeftFunc(rest, isSpace); len(trimmed) < len(rest) {
			l.advance(len(l.src) - len(trimmed))
			continue
		}
		if err := l.inside(rest); err != nil {
			return err
		}
	}
	return nil // the parser reports the missing end
}

func (l *lexer) inside(rest string) error {
	c := rest[0]
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case c >= '0' && c <= '9':
		return l.number(rest)
	case isNameRune(r):
		n := strings.IndexFunc(rest, func(r rune) bool { return !isNameRune(r) })
		if n < 0 {
			n = len(rest)
		}
		l.emit(tokName, rest[:n])
		l.advance(l.pos + n)
		return nil
	case c == '"' || c == '\'':
		return l.str(rest)
	}
	op := ""
	for _, o := range operators {
		if strings.HasPrefix(rest, o) {
			op = o
		}
	}
	if op == "" {
		if strings.IndexByte(operatorBytes, c) < 0 {
			return fmt.Errorf("unexpected character %q", r)
		}
		op = rest[:1]
	}
	switch op {
	case "(", "[", "{":
		l.open = append(l.open, op[0])
	case ")", "]", "}":
		n := len(l.open)
		if n == 0 {
			return fmt.Errorf("unexpected '%s'", op)
		}
		if want := ")]}"[strings.IndexByte("([{", l.open[n-1])]; want != op[0] {
			return fmt.Errorf("unexpected '%s', expected '%c'", op, want)
		}
		l.open = l.open[:n-1]
	}
	l.emit(tokOp, op)
	l.advance(l.pos + len(op))
	return nil
}

func isNameRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
}

// startsName reports whether s begins with a character that can be in a name.
func startsName(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isNameRune(r)
}

// number reads a decimal literal. It refuses the other number notations that Jinja allows.
func (l *lexer) number(rest string) error {
	n, kind := digits(rest), tokInt
	element := l.pos > 0 && l.src[l.pos-1] == '.' // as in x.0.1
	if frac, ok := strings.CutPrefix(rest[n:], "."); ok && digits(frac) > 0 && !element {
		n, kind = n+1+digits(frac), tokFloat
	}
	if startsName(rest[n:]) || kind == tokInt && n > 1 && rest[0] == '0' {
		return unsupportedf("the notation of the number %.12q", rest)
	}
	l.emit(kind, rest[:n])
	l.advance(l.pos + n)
	return nil
}

// digits returns the number of digits at the start of s.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

func (l *lexer) str(rest string) error {
	q := rest[0]
	end := 1
	for end < len(rest) && rest[end] != q {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		return fmt.Errorf("unterminated string")
	}
	text, err := unescape(rest[1:end])
	if err != nil {
		return err
	}
	l.emit(tokString, text)
	l.advance(l.pos + end + 1)
	return nil
}

// unescape decodes s as Python's unicode-escape codec does. An unknown escape is kept, including
// its backslash.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i >= len(s) {
			return "", fmt.Errorf("string ends with a backslash")
		}
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'x', 'u', 'U':
			width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+1+width > len(s) {
				return "", fmt.Errorf("truncated \\%c escape", c)
			}
			n, err := strconv.ParseUint(s[i+1:i+1+width], 16, 32)
			if err != nil {
				return "", fmt.Errorf("bad \\%c escape", c)
			}
			if n > unicode.MaxRune || n >= 0xD800 && n < 0xE000 {
				return "", fmt.Errorf("\\%c%s is not a character", c, s[i+1:i+1+width])
			}
			b.WriteRune(rune(n))
			i += width
		case '0', '1', '2', '3', '4', '5', '6', '7', 'N', 'a', 'b', 'f', 'v':
			return "", unsupportedf("the escape \\%c in a string", c)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
