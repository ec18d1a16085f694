package chat

// The tree of a template. A statement writes to the output of a run, an
// expression gives a value (exec.go, eval.go). Which variable a name means is
// settled once, after parsing (scope.go).

// A stmt is a statement.
type stmt interface {
	exec(r *run) (flow, error)
}

// An expr is an expression.
type expr interface {
	eval(r *run) (Value, error)
}

// A flow says how a statement ended.
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
		testTgt   target // the same names in the scope of the test
		iter      expr
		body, els []stmt
		test      expr
		recursive bool
		extended  bool // the body uses loop
		line      int

		bodyFrame, elseFrame, testFrame frame
		loopVar                         place
		slots                           int // of the function that a recursive loop is
	}
	setStmt struct {
		target target
		e      expr
		line   int
	}
	setBlockStmt struct {
		target target
		filter expr // a filterExpr chain that ends in the captured text, or nil
		body   []stmt
		frame  frame
		line   int
	}
	macroStmt struct {
		*macroBody
		place place
	}
	callStmt struct {
		*macroBody
		call *callExpr
		line int
	}
	// A genStmt is {% generation %}: the body of a macro that is called at once.
	genStmt struct {
		*macroBody
	}
	filterStmt struct {
		filter expr
		body   []stmt
		frame  frame
		line   int
	}
	withStmt struct {
		targets []target
		values  []expr
		body    []stmt
		frame   frame
		line    int
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// A macroBody is what macros and call blocks share.
type macroBody struct {
	name     string
	params   []param
	body     []stmt
	line     int
	frame    frame
	slots    int
	caller   place // where the body looks for caller, kwargs, varargs
	kwargs   place
	varargs  place
	explicit bool // caller is one of the parameters
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
	tupleExpr  struct{ items []expr }
	listExpr   struct{ items []expr }
	dictExpr   struct{ keys, vals []expr }
	andExpr    struct{ a, b expr }
	orExpr     struct{ a, b expr }
	notExpr    struct{ e expr }
	negExpr    struct{ e expr }
	posExpr    struct{ e expr }
	binaryExpr struct {
		op   binop
		a, b expr
		line int
	}
	// A sumExpr is two and more terms with + between them, added from the left.
	sumExpr struct {
		terms []expr
		lines []int // lines[i] is that of the + behind terms[i]
	}
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		first expr
		ops   []cmpop
		rest  []expr
	}
	condExpr struct {
		test, then, els expr // els may be nil
	}
	attrExpr struct {
		of   expr
		name string
		cost int // of a search for a long name, in steps
		// onStr and onDict are the methods of the name that a str or a dict has and that
		// may be called; nil where there is none.
		onStr, onDict methodFunc
		// element says that of a dict the name can only be an element, and missing is what
		// a dict without it gives.
		element bool
		missing Value
	}
	itemExpr  struct{ of, key expr }
	sliceExpr struct {
		of, start, stop, step expr
		folded                bool // all of it is known before any render
	}
	callExpr struct {
		fn     expr
		args   []expr
		kwargs []kwarg
		dynArg expr
		dynKw  expr
		line   int
	}
	filterExpr struct {
		of   expr // nil: the captured text of the block around it
		name string
		fn   filterFunc // nil: unknown, an error when it is reached
		call *callExpr  // arguments only, or nil
		line int
	}
	testExpr struct {
		of   expr
		name string
		fn   testFunc
		call *callExpr
		line int
	}
)

type kwarg struct {
	name string
	e    expr
}

// A target is what can be assigned to: a name, an attribute of a namespace, or a
// tuple of targets.
type target struct {
	name  string
	attr  string // not empty: name is a namespace
	parts []target
	tuple bool
	place place
	line  int
}
