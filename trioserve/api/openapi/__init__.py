"""The API described for machines and for people: `/openapi.json` and `/docs`.

Request bodies come from the declarations that validate them. `operations` lists every route,
`generation_replies` and `other_replies` describe the answers, `document` puts them together and
`page` makes them readable.
"""
