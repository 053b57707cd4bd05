# What needs no documentation of its own: comparisons, and the moves and copies that the language defines.
s/^.*operator==?\(.*$//
s/^.*\([A-Za-z]+&&\) noexcept;.*$//
s/^.*\(const ErrorInFlight& .*$//
# Names of headers in comments are no links to their sources.
\,///,s,remat/([a-z_]+\.h),remat/%\1,g
# Private parts.
/^ private:/,/^};/{
/^};/!s/.*//
}
# Declarations of what is not ours.
/^namespace (c10d|torch::optim) \{/,/^\}/s/.*//
