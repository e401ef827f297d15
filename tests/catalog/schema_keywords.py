"""The keywords of JSON Schema that `schema_check` knows: our schemas must use no others."""

KEYWORDS = frozenset(
    {
        *("$schema", "title", "description", "definitions", "patternErrorMessage"),
        *("$ref", "type", "enum", "properties", "additionalProperties", "required", "items", "minItems"),
        *("pattern", "minLength", "minimum", "maximum", "exclusiveMinimum", "allOf", "oneOf", "dependencies"),
    }
)
