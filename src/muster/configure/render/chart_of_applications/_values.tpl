{{- /* Merges the map "above" into the map "below", in place. Maps are merged, all else is replaced; a null is a value. */ -}}
{{- define "muster.merge" -}}
{{- $below := .below -}}
{{- range $key, $value := .above -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $below $key)) -}}
{{- include "muster.merge" (dict "below" (get $below $key) "above" $value) -}}
{{- else -}}
{{- $_ := set $below $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The values of one release as text, whether given as a map or as text. Text keeps nulls that Helm
may drop from maps, and JSON is YAML that every reader understands alike. */ -}}
{{- define "muster.text" -}}
{{- if kindIs "string" . -}}{{- . -}}{{- else -}}{{- toJson . -}}{{- end -}}
{{- end -}}
