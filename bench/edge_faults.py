"""Faults at the edges of types, formats, names and processes, as `rule_mutants.FAULTS` has them.

python bench/rule_mutants.py "edge:"
"""

BY_KEY = "tests/unit/test_outputs_by_key.py"
RENAMED = "tests/property/test_renamed_columns.py"

# By what they are called: the test, the file, a text, and what is put in its place.
FAULTS: dict[str, tuple[str, str, str, str]] = {
    # types: what SQL calls a type, and what an expression has.
    "edge:types decimals in lists are not looked at": (
        "tests/property/test_declared_types.py::test_decimals_in_lists",
        "processor/reading/usual_forms.py",
        "                yield partial(_of_lists, numbers), decimal\n",
        "                pass\n",
    ),
    "edge:types a null has the type of JSON": (
        "tests/property/test_types_of_views.py::test_a_null_without_a_type",
        "processor/linear/nest.py",
        "        self._value_types = types\n",
        "        types = {n: JSON if kind == '\"NULL\"' else kind for n, kind in types.items()}\n"
        "        self._value_types = types\n",
    ),
    "edge:types texts are read as JSON beside JSON": (
        "tests/property/test_types_of_views.py::test_texts_are_not_read",
        "processor/relational/sql_whole.py",
        "        return own == VARCHAR\n",
        "        return False\n",
    ),
    "edge:types types are compared as they are spelt": (
        "tests/property/test_types_of_views.py::test_a_type_is_one",
        "processor/linear/trees.py",
        "            value = _in_full(value)\n",
        "            pass\n",
    ),
    "edge:types numbers of FLOAT are added as they are written": (
        "tests/property/test_types_of_views.py::test_numbers_of_single_precision",
        "processor/planning/aggregates.py",
        'traits.takes == "number" and "FLOAT" in kinds',
        "False",
    ),
    "edge:types a constant that does not fit is left to the rows": (
        "tests/unit/test_misfits.py::test_types_that_can_never_fit",
        "processor/linear/misfits.py",
        '        failure = _failure(sql, tuple((name, "NULL", kind) for name, kind in columns))\n',
        "        failure = None\n",
    ),
    "edge:types a reason has the data of the row": (
        "tests/unit/test_misfits.py::test_an_error_record_says_why",
        "processor/linear/database.py",
        '_QUOTED.sub(r"\\1…\\1", said)',
        "said",
    ),
    "edge:types keys are looked up by the text of a date": (
        "tests/unit/test_types_for_readers.py::test_a_key_is_found",
        "serving/sql/tables.py",
        'if (view.meta.columns.get(field, kind) == "VARCHAR") != (kind == "VARCHAR"):',
        "if False:",
    ),
    "edge:types values of another type fail a query": (
        "tests/unit/test_types_for_readers.py::test_values_of_another_type",
        "serving/sql/tables.py",
        "        if not types:\n            raise\n",
        "        raise\n",
    ),
    "edge:types readers are not told the types": (
        "tests/unit/test_of_a_batch.py::test_progress_tells_the_types",
        "processor/deciding/publishing.py",
        "            columns=dict(output_types(plan, output)),\n",
        "",
    ),
    # codecs: values as connectors write them.
    "edge:codecs JSON in a text stays a text": (
        "tests/unit/test_column_encodings.py::test_a_column_declared_json",
        "codecs/column_encodings.py",
        '"json": Encoding(_json, _TEXTS),',
        '"json": Encoding(lambda value: value, _TEXTS),',
    ),
    "edge:codecs a text that is no JSON is a string": (
        "tests/unit/test_column_encodings.py::test_a_text_that_is_no_json",
        "codecs/column_encodings.py",
        """    raise DecodeError("value", f"expected JSON, found another text: {reason}")""",
        "    return value",
    ),
    "edge:codecs a column that only has an encoding is not checked": (
        "tests/unit/test_column_encodings.py::test_a_text_that_is_no_json",
        "processor/reading/column_types.py",
        "(*_kinds(source), *encodings_of(source))",
        "(*_kinds(source),)",
    ),
    "edge:codecs the fields of documents are texts of JSON": (
        "tests/unit/test_column_encodings.py::test_the_fields_of_a_document",
        "codecs/debezium_rows.py",
        "row, plan = decode.document(row.encode()), self._in_documents",
        "row = decode.document(row.encode())",
    ),
    "edge:codecs plain JSON has no encodings": (
        "tests/unit/test_column_encodings.py::test_every_format",
        "codecs/plain.py",
        "_encoded(value, wanted) if wanted.encodings else value",
        "value",
    ),
    "edge:codecs the key of Kafka is passed on as it is": (
        "tests/unit/test_column_encodings.py::test_keys_have",
        "codecs/debezium_rows.py",
        'names = ["schema", "payload", *wanted.encodings]',
        'names = ["schema", "payload"]',
    ),
    "edge:codecs a decimal is no number": (
        "tests/unit/test_encodings.py::test_declared_encodings",
        "codecs/encodings.py",
        "if value is None or value.__class__ in _NUMBERS:",
        "if value is None:",
    ),
    "edge:codecs branches of a union are told by their types": (
        "tests/unit/test_avro.py::test_a_union_has_the_value",
        "codecs/avro.py",
        "apart=not resolved",
        "apart=False",
    ),
    "edge:codecs an encoding is for every type of a schema": (
        "tests/unit/test_debezium.py::test_encodings_are_declared",
        "codecs/column_encodings.py",
        "return kind in self.types and (",
        "return (",
    ),
    "edge:codecs an interval of another sign": (
        "tests/unit/test_encodings.py::test_declared_encodings",
        "codecs/encodings.py",
        """return f"PT{'-' if count < 0 else ''}""",
        """return f"PT{''}""",
    ),
    # new: what is proposed for a topic.
    "edge:new the schema beside the payload is not looked at": (
        "tests/unit/test_new_types.py::test_types_are_those_of_the_schema",
        "processor/proposing/formats.py",
        "return event(payload(value), kinds or None)",
        "return event(payload(value), None)",
    ),
    "edge:new what is proposed is not tried": (
        "tests/unit/test_new_types.py::test_a_type_that_does_not_take",
        "processor/proposing/trial.py",
        "if source.columns and ColumnTypes(source).wrong(rows):",
        "if False:",
    ),
    "edge:new rows of Connect are plain JSON": (
        "tests/unit/test_new_types.py::test_rows_of_connect_with_their_schema",
        "processor/proposing/formats.py",
        "return row is not value and len(value) == 2 and told",
        "return False",
    ),
    "edge:new messages without a schema have no encoding": (
        "tests/unit/test_new_types.py::test_messages_without_the_schema",
        "processor/proposing/proposal.py",
        "kind.encoding if bare else None",
        "None",
    ),
    "edge:new old images that lack are trusted": (
        "tests/unit/test_new_types.py::test_tables_without_a_key",
        "processor/proposing/proposal.py",
        "if traits.old_images and not found.imageless and",
        "if traits.old_images and",
    ),
    "edge:new a fraction is a double": (
        "tests/unit/test_new_types.py::test_numbers_have_all",
        "processor/proposing/kinds.py",
        "elif all(map(_fits_a_double, values)):",
        "else:",
    ),
    "edge:new rows in Avro need a key": (
        "tests/unit/test_append.py::test_rows_in_avro",
        "processor/reading/messages.py",
        "if key is not None:\n            return self._codec.changes(key",
        "if self.plain is None:\n            return self._codec.changes(key",
    ),
    # values: nested values, numbers that are not finite, columns that nothing reads.
    "edge:values what nobody reads is not looked at": (
        "tests/property/test_damage_in_unread_fields.py::test_damage_is_an_error",
        "codecs/unread.py",
        "    if _doubtful(message):\n",
        "    if not message:\n",
    ),
    "edge:values a number with an exponent is in range": (
        "tests/property/test_damage_in_unread_fields.py::test_damage_is_an_error",
        "codecs/unread.py",
        'return b"0e" in kinds or _MANY_DIGITS in kinds',
        "return _MANY_DIGITS in kinds",
    ),
    "edge:values what is no object is one without fields": (
        "tests/unit/test_typed_json.py::test_a_type_takes",
        "processor/linear/typed_json.py",
        "CASE WHEN {other} THEN '!' ELSE {text} END",
        "{text}",
    ),
    "edge:values decimals within structs have any scale": (
        "tests/unit/test_nested_values.py::test_decimals_within_structs",
        "processor/reading/usual_forms.py",
        "                for numbers, decimal in _numbers_in(of):\n"
        '                    yield partial(_of_structs, attrgetter(f"f{at}"), numbers), decimal\n',
        "                pass\n",
    ),
    "edge:values NaN is the least where an order is turned around": (
        "tests/property/test_not_finite.py::test_a_view_is",
        "processor/relational/ranking.py",
        'parts.append(f"NOT isnan({name})")',
        'parts.append(f"isnan({name})")',
    ),
    "edge:values infinity and its opposite are infinity": (
        "tests/property/test_not_finite.py::test_infinity_and_its_opposite",
        "processor/kernels/aggregate_kinds.py",
        "return NAN if nans or (up and down) else",
        "return NAN if nans else",
    ),
    "edge:values doubles are ordered as texts": (
        "tests/property/test_not_finite.py::test_a_view_is",
        "processor/linear/sql_order.py",
        'if name in ("DOUBLE", "FLOAT"):\n        return "double"',
        'if name in ("DOUBLE", "FLOAT"):\n        return ""',
    ),
    "edge:values a null key without a value is an error": (
        "tests/unit/test_null_keys.py::test_records_without_a_key",
        "processor/reading/upserts.py",
        "    if message.value is not None:\n        decoded.bad",
        "    if True:\n        decoded.bad",
    ),
    "edge:values a machine steps on a null key": (
        "tests/unit/test_null_keys.py::test_a_state_machine",
        "processor/kernels/state_machine.py",
        "    if event.key == NULL_KEY:\n",
        "    if event.key is None:\n",
    ),
    "edge:values a field of JSON picks the whole column": (
        "tests/unit/test_fields_of_json.py::test_a_view_reads",
        "processor/linear/picking.py",
        ' or len(node["column_names"]) > 1:',
        ":",
    ),
    # loud: what is said of inputs.
    "edge:loud a column that no message has is passed over": (
        "tests/unit/test_notices.py::test_a_declared_column",
        "processor/proposing/columns_seen.py",
        "absent = sorted(declared - counts.keys() - {*source.key})",
        "absent: list[str] = []",
    ),
    "edge:loud fields are looked for in no list": (
        "tests/unit/test_notices.py::test_fields_are_looked_for",
        "processor/proposing/notices.py",
        "        case List(of) | Array(of):",
        "        case Array(of):",
    ),
    "edge:loud some errors are all errors": (
        "tests/unit/test_notices.py::test_an_input_whose_messages_are_all",
        "processor/proposing/notices.py",
        "if not seen.read or seen.reasons.total() < seen.read:",
        "if not seen.reasons:",
    ),
    "edge:loud a declared column that is absent counts as null": (
        "tests/unit/test_notices.py::test_every_format",
        "processor/proposing/look.py",
        "declared=_AsTheyAre(wanted.declared)",
        "declared=wanted.declared",
    ),
    "edge:loud a notice is said each time": (
        "tests/unit/test_batch_display.py::test_a_notice_is_said_once",
        "processor/watching/display.py",
        "                self._said.add(each.name)\n",
        "",
    ),
    "edge:loud a notice that is gone keeps its series": (
        "tests/unit/test_metrics.py::test_a_notice_is_shown",
        "processor/ground/notice.py",
        "    found = {(kind, name): 0 for kind in KINDS for name in inputs}\n",
        "    found: dict[tuple[Kind, str], int] = {}\n",
    ),
    "edge:loud what messages have is in notices for everybody": (
        "tests/unit/test_metrics.py::test_a_notice_is_shown",
        "processor/watching/notes.py",
        "NoticeFigures(*each.name, each.words, ",
        "NoticeFigures(*each.name, each.line, ",
    ),
    "edge:loud times of different kinds have a common frontier": (
        "tests/unit/test_times_together.py",
        "serving/common_times.py",
        "    check_kinds(views)\n    return min",
        "    return min",
    ),
    "edge:loud magnitude counts more than what is told": (
        "tests/unit/test_times_together.py::test_what_is_told",
        "processor/timing/kinds_of_time.py",
        "    if recorded is not None:\n        return recorded\n",
        "",
    ),
    "edge:loud errors of other modules have no words of their own": (
        "tests/unit/test_restarts.py::test_every_error",
        "processor/spark/failures.py",
        "or kind is PlanError:",
        "or kind.__module__ != errors.__name__:",
    ),
    # names: names of columns, arguments of the Python API.
    "edge:names one text is its letters": (
        "tests/unit/test_texts_of_the_api.py",
        "processor/linear/settled.py",
        "    if isinstance(several, str):\n        return (several,)\n",
        "",
    ),
    "edge:names the whole key comes before a column": (
        "tests/unit/test_names_of_columns.py::test_key_is_the_whole_key",
        "processor/linear/scope.py",
        "if whole is None or name in self.types:",
        "if whole is None:",
    ),
    "edge:names a join by a column named key is by the key": (
        "tests/unit/test_names_of_columns.py::test_a_join_by_a_column",
        "processor/joins/qualified.py",
        "return [scope.column(names[1]), *names[2:]]",
        "return [{'key': 'ikebana_key'}.get(names[1], names[1]), *names[2:]]",
    ),
    "edge:names a name of ours is taken": (
        "tests/unit/test_names_of_columns.py::test_names_of_ours",
        "processor/planning/input_problems.py",
        "if is_ours(column.name):",
        "if not column.name:",
    ),
    "edge:names rows with keys of bytes keep their bytes beside joins": (
        "tests/unit/test_names_of_columns.py::test_rows_with_keys_of_bytes",
        "processor/relational/matching.py",
        " or left.relation.key == BLOB:",
        ":",
    ),
    "edge:names columns alike are read by a view": (
        "tests/unit/test_names_of_columns.py::test_a_view_reads_beside",
        "processor/relational/sql_whole.py",
        "if self._stars or lower in self._mentioned:",
        "if self._stars:",
    ),
    "edge:names a notebook's function is taken to be a module's": (
        "tests/unit/test_python_runs.py::test_a_program_without",
        "processor/linear/functions.py",
        '== "__main__" and main_module() is None:',
        '== "__nowhere__":',
    ),
    "edge:names a key that is no column is taken": (
        "tests/unit/test_names_of_columns.py::test_keys_and_unique",
        "processor/planning/input_problems.py",
        "if declared and name not in declared:",
        "if name in ():",
    ),
    "edge:names a key of one column is several keys": (
        "tests/unit/test_texts_of_the_api.py",
        "processor/linear/settled.py",
        "return (read,) if read else ()",
        "return tuple((each,) for each in read)",
    ),
    # kernels: negative counts, lost processes, recoveries.
    "edge:kernels: sizes count what was taken away, and not what was added": (
        "tests/property/test_joins_in_plans.py::test_a_circle_of_one_datum",
        "processor/kernels/arrange.py",
        "len({u.value for u in recent})",
        "len({u.value for u in recent if u.diff < 0})",
    ),
    "edge:kernels: a key whose counts sum to 0 has no results, whatever is left": (
        "tests/property/test_negative_counts.py::test_counts_pass",
        "processor/kernels/reduce.py",
        "state.rows or self._is_always or named != _of_nothing(self._aggregates)",
        "state.rows or self._is_always",
    ),
    "edge:kernels: a row that counts less than nothing meets nothing": (
        "tests/property/test_negative_counts.py::test_counts_pass",
        "processor/relational/rows.py",
        "'<>' if signed else '>'",
        "'>' if signed else '>'",
    ),
    "edge:kernels: a sum of as many values as were taken away is null": (
        "tests/property/test_reduce.py::test_incremental_is_batch",
        "processor/kernels/aggregate_kinds.py",
        "return canonical_of(total) if count or total else None",
        "return canonical_of(total) if count else None",
    ),
    "edge:kernels: a JVM that is killed in a start has failed by a mistake": (
        "tests/unit/test_spark_session.py::test_a_jvm_that_was_killed",
        "processor/spark/session.py",
        "if jvm.status < 0:",
        "if jvm.status < -64:",
    ),
    "edge:kernels: the log of a start that has failed lacks the error": (
        "tests/unit/test_spark_session.py::test_what_fails_in_a_jvm",
        "processor/spark/jvm.py",
        "            file.writelines(traceback.format_exception(error))\n",
        "",
    ),
    "edge:kernels: two starts of Spark begin in one process": (
        "tests/unit/test_attempts.py::test_of_starts_at_the_same_time",
        "processor/spark/alone.py",
        "if not is_free or _is_running():",
        "if _is_running():",
    ),
    "edge:kernels: the difference of a recovery comes when the state is made": (
        "tests/property/test_recovery.py::test_outputs_are",
        "processor/batch/rebuilt.py",
        "update._replace(time=min(update.time, of.begin))",
        "update._replace(time=update.time if update.time < of.begin else passed - 1)",
    ),
    "edge:kernels: a time at which outputs may contradict each other is not named": (
        "tests/unit/test_recovering.py::test_the_times_that_outputs_give_up",
        "processor/deciding/recovering.py",
        "range(self.stand(output), self.begin) if has_begun",
        "range(self.stand(output), self.stand(output)) if has_begun",
    ),
    # keys: unique keys, join plans, renamed columns.
    "edge:keys a left join keeps the key of its left whatever it meets": (
        BY_KEY,
        "processor/planning/unique_keys.py",
        "        if inner.is_unique(key):\n",
        "        if True:\n",
    ),
    "edge:keys what is computed of a key is one": (
        BY_KEY,
        "processor/planning/row_keys.py",
        "one_to_one=all(same)",
        "one_to_one=True",
    ),
    "edge:keys the first two rows of a partition are one": (
        BY_KEY,
        "processor/relational/ranking.py",
        "        if limit > 1:\n",
        "        if limit > 2:\n",
    ),
    "edge:keys rows with another key stay in their shards": (
        BY_KEY,
        "processor/planning/planner.py",
        'and any(hop for _, hop in inlet_paths(plan, Inlet("", output.source, ())))',
        "and not output",
    ),
    "edge:keys an alias is another row": (
        RENAMED,
        "processor/planning/stored_rows.py",
        "    return None if made is None else ((name, made), *steps[same:])\n",
        "    return None\n",
    ),
    "edge:keys a row is there on which a step of before has failed": (
        RENAMED,
        "processor/planning/stored_rows.py",
        "or not computed.keys() <= {t for _, t in new.select}",
        "or not {t for _, t in new.select}",
    ),
    "edge:keys all inputs that are left are looked at for what remains": (
        "tests/unit/test_join_paths.py",
        "processor/joins/paths.py",
        "if preferences[each][:2] == best]",
        "if best]",
    ),
    "edge:keys what an input declares is sure": (
        BY_KEY,
        "processor/relational/known.py",
        "facts = Facts(keys, declared(keys, self.inputs, self.operators.get(name), found))",
        "facts = Facts(*[declared(keys, self.inputs, self.operators.get(name), found)] * 2)",
    ),
    "edge:acts: a second start is refused in its own thread": (
        "tests/unit/test_attempts.py::test_spark_is_started_once",
        "processor/running/handle.py",
        "        if spark is None:\n            self._claim",
        "        if False:\n            self._claim",
    ),
    "edge:acts: a run that has failed keeps Spark to itself": (
        "tests/unit/test_attempts.py::test_a_run_that_shows_its_end",
        "processor/running/handle.py",
        "            with self._claim:\n",
        "            with ExitStack():\n",
    ),
    "edge:acts: a collection that is behind is not named": (
        "tests/unit/test_sql_command.py::test_a_topic_that_is_behind",
        "processor/cli/sql.py",
        "    if len(times) > 1:\n",
        "    if not times:\n",
    ),
    "edge:acts: a session that was stopped ends its run by what came of it": (
        "tests/unit/test_given_session.py::test_a_session_that_is_stopped",
        "processor/spark/given_session.py",
        "        self.begin()\n        return True\n",
        "        return True\n",
    ),
    "edge:breaker: an edit that begins to watch is an older version's work": (
        "tests/unit/test_outputs_by_key.py::test_an_edit_does_not_begin",
        "processor/checkpoint/evolution.py",
        "watched_outputs(plan) - watched_outputs(old)",
        "set[str]()",
    ),
    "edge:breaker: a column called key that is gone is unread": (
        "tests/unit/test_edits.py::test_a_key_means_the_whole_key",
        "processor/planning/identity.py",
        "if any(name.lower() in SHORT for name",
        "if any(False for name",
    ),
    "edge:breaker: what TRY has is refused": (
        "tests/unit/test_misfits.py::test_what_some_value_fits",
        "processor/linear/misfits.py",
        ' or node["type"] == "OPERATOR_TRY"',
        "",
    ),
    "edge:front a token of some collections sees the console of a run": (
        "tests/unit/test_who_asks_a_run.py::test_a_token_sees_metrics",
        "processor/watching/guard.py",
        "if not sees_all and rules.shared",
        "if False and rules.shared",
    ),
    "edge:front who needs no token is shown records": (
        "tests/unit/test_console_of_a_run.py::test_records_are_shown_to_a_token_alone",
        "processor/watching/answering.py",
        "if looking is None or grant_of(request) is EVERYTHING:",
        "if looking is None:",
    ),
    "edge:front a run forgets the rate of a token": (
        "tests/unit/test_who_asks_a_run.py::test_a_token_asks_a_run",
        "processor/watching/guard.py",
        "rate = limits.rate if grant.rate is None else grant.rate",
        "rate = limits.rate",
    ),
    "edge:front probes without a token are told names": (
        "tests/unit/test_who_asks_a_run.py::test_without_a_token",
        "processor/watching/answering.py",
        "return good, reason if self.is_all else",
        "return good, reason if True else",
    ),
    "edge:reads a client reads as of the newest time whatever it asks for": (
        "tests/unit/test_served_reads.py",
        "serving/http/parameters.py",
        "                fields[name] = str(value)\n",
        '                fields[name] = str(value) if name != "as_of" else None\n',
    ),
    "edge:reads values of many keys have no bound over HTTP": (
        "tests/unit/test_serve_http.py",
        "serving/http/operations.py",
        "_reading(reads.get_many, most_bytes=MOST_PAGE_BYTES)",
        "_reading(reads.get_many)",
    ),
    "edge:codecs a refusal in Avro names Debezium twice": (
        "tests/unit/test_debezium_avro.py::test_a_refusal_names",
        "codecs/debezium_avro.py",
        "fault.codec if fault.codec in (KEY, VALUE) else",
        "fault.codec if False else",
    ),
    # catalog: what is known of collections, and of which nothing is.
    "edge:catalog what reads itself is sound": (
        "tests/unit/test_catalog.py",
        "processor/planning/catalog.py",
        "                        self._faulty.add(source)\n",
        "                        pass\n",
    ),
    "edge:catalog what was missing stays unknown": (
        "tests/unit/test_catalog.py",
        "processor/planning/catalog.py",
        "for operator in operators}\n        self._forget_faulty()\n",
        "for operator in operators}\n",
    ),
    "edge:catalog other columns are unique as those they are made of": (
        "tests/unit/test_catalog.py",
        "processor/planning/operators/linear.py",
        "if key == (KEY,) and keeps_key(steps))",
        "if keeps_key(steps))",
    ),
    "edge:catalog a column that is unknown is JSON behind a function": (
        "tests/unit/test_all_mistakes.py",
        "processor/linear/judging.py",
        "    if UNKNOWN not in scope.types.values():\n",
        "    if True:\n",
    ),
    "edge:catalog an unsure condition connects nothing": (
        "tests/unit/test_join_mistakes.py",
        "processor/joins/binding.py",
        "            if not self._told(place, self._add_all, place, text):\n",
        "            if not self._told(place, self._add_all, place, text) and place == text:\n",
    ),
}
