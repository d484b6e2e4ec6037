# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# The steps of a program, as `codecs.avro_compiler` makes them.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdlib cimport malloc

cdef enum:
    # Room for what a step writes besides its name: a number, a date, brackets and commas.
    OF_STEP = 64
    LARGEST_SCALE = 22

# What a value is in Avro.
cdef enum Kind:
    NOTHING
    BOOLEAN
    LONG
    SINGLE
    DOUBLE
    STRING
    BYTES
    FIXED
    ENUM
    RECORD
    ARRAY

# What is written of it; ANY is whatever the function of its step makes.
cdef enum Form:
    ANY
    OWN
    DATE
    TIME
    MOMENT
    DECIMAL
    ZONED

cdef struct Step:
    Kind kind
    Form form
    bint wanted
    # A union with null: the byte of its branch, and that of the other.
    bint optional
    unsigned char null
    unsigned char other
    # What a form needs: digits of a second, or of a fraction; whether a "Z" follows.
    Py_ssize_t scale
    bint utc
    # The bytes of a fixed.
    Py_ssize_t size
    # `"name":`
    const char* name
    Py_ssize_t name_size
    PyObject* key
    PyObject* convert
    PyObject* symbols
    # The steps of a record's fields, and those that are wanted by their names; an array has one
    # step, that of its items.
    Py_ssize_t first
    Py_ssize_t count
    Py_ssize_t* order
    Py_ssize_t wanted_count
    # Whether nobody needs the record as one text; whether its fields have the order of names.
    bint loose
    bint in_order
    # The most bytes that this step and its own write besides those of the message.
    Py_ssize_t fixed


cdef struct Span:
    # Where a member was written, with its name and a comma.
    Py_ssize_t begin
    Py_ssize_t size
    # Whether it is null, or not there.
    bint null


cdef struct Take:
    # A value to hand back: a whole one, or the members of a record that are chosen.  The step
    # is -1 if nothing is to be taken, and the count if the value is whole.
    Py_ssize_t step
    Py_ssize_t* members
    Py_ssize_t count


cdef inline Kind kind_of(str name) except *:
    """Raises: KeyError, if there is no such kind."""
    cdef dict kinds = {
        "null": NOTHING, "boolean": BOOLEAN, "int": LONG, "long": LONG, "float": SINGLE,
        "double": DOUBLE, "string": STRING, "bytes": BYTES, "fixed": FIXED, "enum": ENUM,
        "record": RECORD, "array": ARRAY,
    }
    return kinds[name]


cdef inline Form form_of(str name) except *:
    """Raises: KeyError, if there is no such form."""
    cdef dict forms = {
        "": ANY, "own": OWN, "date": DATE, "time": TIME, "timestamp": MOMENT,
        "decimal": DECIMAL, "zoned": ZONED,
    }
    return forms[name]


cdef inline int set_step(Step* steps, Py_ssize_t count, Py_ssize_t at, given) except -1:
    """Set one of so many steps; `given` has to be kept, which has what a step points to."""
    cdef Step* step = &steps[at]
    cdef bytes name = given.name
    cdef str key = given.key
    cdef tuple symbols = given.symbols
    cdef object convert = given.convert
    cdef Py_ssize_t longest = 0
    if name is None or key is None or symbols is None:
        raise TypeError("a step has names and symbols")
    step.kind, step.form = kind_of(given.kind), form_of(given.form)
    step.wanted, step.loose = given.wanted, given.loose
    step.optional = given.null is not None
    if step.optional:
        if given.null not in (0, 1):
            raise ValueError("a union has two branches")
        step.null, step.other = 2 * given.null, 2 - 2 * given.null
    step.scale, step.utc, step.size = given.scale, given.utc, given.size
    if step.size < 0 or not 0 <= step.scale <= LARGEST_SCALE:
        raise ValueError("a size is out of range")
    step.name, step.name_size = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
    step.key, step.symbols = <PyObject*>key, <PyObject*>symbols
    step.convert = NULL if convert is None else <PyObject*>convert
    if not fit(step):
        raise ValueError("a kind has no such form, or lacks its function")
    for symbol in symbols:
        longest = max(longest, len(<bytes?>symbol))
    step.fixed = step.name_size + longest + OF_STEP
    step.first, step.count = given.first, given.length
    if step.kind == RECORD and step.count or step.kind == ARRAY and step.count == 1:
        if step.count < 0 or not at < step.first <= count - step.count:
            raise ValueError("a step is followed by its own")
    elif step.count or step.kind == ARRAY:
        raise ValueError("a record has steps, an array one, and others none")
    step.order = members_of(step, given.order)
    step.wanted_count = len(given.order)
    step.in_order = list(given.order) == sorted(given.order)
    return 0


cdef inline Py_ssize_t* members_of(Step* step, tuple given) except NULL:
    """The indexes of fields of a record."""
    cdef Py_ssize_t* made
    cdef Py_ssize_t at, index
    if len(set(given)) < len(given):
        raise ValueError("a member is named twice")
    for index in given:
        if not step.first <= index < step.first + step.count:
            raise ValueError("a member is none of its record")
    made = <Py_ssize_t*>malloc((<size_t>len(given) + 1) * sizeof(Py_ssize_t))
    if made == NULL:
        raise MemoryError
    for at in range(len(given)):
        made[at] = given[at]
    return made


cdef inline int sum_up(Step* steps, Py_ssize_t count) except -1:
    """Add to each step what its own ones write, once all are set, and check what is written."""
    cdef Py_ssize_t at, own, listed
    cdef Step* step
    for at in range(count - 1, -1, -1):
        step = &steps[at]
        listed = 0
        for own in range(step.first, step.first + step.count):
            step.fixed += steps[own].fixed
            if step.kind == RECORD:
                listed += steps[own].wanted
        for own in range(step.wanted_count):
            listed -= steps[step.order[own]].wanted
        if step.kind == RECORD and (listed or not _all_wanted(steps, step)):
            raise ValueError("a record lists the fields that are written")
        if step.fixed > 1 << 30:
            raise ValueError("a program writes too much")
    return 0


cdef inline bint _all_wanted(const Step* steps, const Step* step) noexcept:
    cdef Py_ssize_t own
    for own in range(step.wanted_count):
        if not steps[step.order[own]].wanted:
            return False
    return True


cdef inline int set_take(Take* take, Step* steps, Py_ssize_t count, given) except -1:
    """Set what to hand back; `given` is None, or the index of a step and those of its members."""
    cdef Py_ssize_t at
    take.step = take.count = -1
    if given is None:
        return 0
    step, members = given
    if not 0 <= step < count:
        raise ValueError("there is no such step")
    take.step = step
    if members is None:
        return 0
    if steps[take.step].kind != RECORD or steps[take.step].form != OWN:
        raise ValueError("only a record has members")
    take.members = members_of(&steps[take.step], members)
    take.count = len(members)
    for at in range(take.count):
        if not steps[take.members[at]].wanted:
            raise ValueError("a member is not written")
    return 0


cdef inline bint fit(const Step* step) noexcept:
    """Whether a kind of value has a form, and a function for what the form does not cover."""
    if step.form == OWN:
        return step.convert != NULL or (step.kind != DOUBLE and step.kind != SINGLE)
    if step.convert == NULL:
        return False
    if step.form == DATE or step.form == TIME or step.form == MOMENT:
        return step.kind == LONG and step.scale <= 9
    if step.form == ZONED:
        return step.kind == STRING
    if step.form == DECIMAL:
        return step.kind == BYTES or step.kind == FIXED
    return True
