package chat

// These types form the tree of a template. Statements write to the output of a run (exec.go).
// Expressions return values (eval.go). scope.go resolves variable names once, after parsing.

type stmt interface {
	exec(r *run) (flow, error)
}

type expr interface {
	eval(r *run) (Value, error)
}

// A flow states how a statement ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

type (
	textStmt struct{ text string }
	outStmt  struct {
		e    expr
		line int
	}
	ifStmt struct {
		test expr
		body []stmt
		alts []*ifStmt // elif
		els  []stmt
		line int
	}
	forStmt struct {
		target    target
		testTgt   target // the same names as target, in the scope of the test
		iter      expr
		body, els []stmt
		test      expr
		extended  bool // the body uses the variable loop
		line      int

		bodyFrame, elseFrame, testFrame frame
		loopVar                         place
	}
	setStmt struct {
		target target
		e      expr
		line   int
	}
	setBlockStmt struct {
		target target
		filter expr // a chain of applyExpr that starts with the captured text, or nil
		body   []stmt
		frame  frame
		line   int
	}
	macroStmt struct {
		*macroBody
		place place
	}
	// A genStmt is a {% generation %} block. It is a macro that is called immediately.
	genStmt struct {
		*macroBody
	}
	filterStmt struct {
		filter expr
		body   []stmt
		frame  frame
		line   int
	}
	// A withStmt sets the variables of its body. It evaluates all values before it sets the first
	// variable.
	withStmt struct {
		set   setStmt
		body  []stmt
		frame frame
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// A macroBody is the part that macros and generation blocks have in common.
type macroBody struct {
	name   string
	params []param
	body   []stmt
	line   int
	frame  frame
	slots  int
}

type param struct {
	name  string
	def   expr
	place place
	line  int
}

type (
	constExpr struct{ v Value }
	nameExpr  struct {
		name  string
		place place
		line  int
	}
	// A seqExpr is a list or a tuple.
	seqExpr struct {
		kind  Kind
		items []expr
	}
	dictExpr struct{ keys, vals []expr }
	// A boolExpr is an operation with "and" or "or".
	boolExpr struct {
		a, b expr
		or   bool
	}
	notExpr struct{ e expr }
	// A signExpr is -e or +e.
	signExpr struct {
		op binop
		e  expr
	}
	binaryExpr struct {
		op   binop
		a, b expr
		line int
	}
	// A sumExpr is a sum of two or more terms, added from the left.
	sumExpr struct {
		terms []expr
		lines []int // lines[i] is the line of the + after terms[i]
	}
	concatExpr struct{ parts []expr }
	// A compareExpr is a chain of comparisons: ops[i] compares values[i] with values[i+1].
	compareExpr struct {
		ops    []binop
		values []expr
		lines  []int
	}
	condExpr struct {
		test, then, els expr // els can be nil
	}
	attrExpr struct {
		of   expr
		name string
		cost int // extra steps that the lookup of a long name costs
		// onStr and onDict are the supported methods of str and dict with this name, or nil.
		onStr, onDict *function
		// element is true if the name can be only a key of a dict, not an attribute. The field
		// missing is the result for a dict without this key.
		element bool
		missing Value
	}
	itemExpr  struct{ of, key expr }
	sliceExpr struct {
		of, start, stop expr
		reverse         bool // [::-1]
	}
	callExpr struct {
		fn     expr
		args   []expr
		kwargs []kwarg
		line   int
	}
	// An applyExpr is a filter or a test.
	applyExpr struct {
		of   expr   // nil for the captured text of the enclosing block
		kind string // filter or test
		name string
		fn   *function // nil if the function is unknown; evaluating the expression is then an error
		call *callExpr // only its arguments are used; can be nil
		line int
	}
)

type kwarg struct {
	name string
	e    expr
}

// A target is an assignment target: a name, an attribute of a namespace, or a tuple of targets.
type target struct {
	name  string
	attr  string // if not empty, name is a namespace
	parts []target
	tuple bool
	place place
	line  int
}
