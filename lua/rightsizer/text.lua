--- Makes text safe to put on the wire, and says whether text from the wire is safe to show.
-- Users may put any bytes into a job's name, comment or script; a frame has to be valid UTF-8.
local text = {}

local function is_continuation(byte)
   return byte ~= nil and byte >= 0x80 and byte <= 0xBF
end

--- The smallest and largest second byte that a lead byte allows: no overlong forms, no surrogates.
local SECOND_BYTE = {
   [0xE0] = { 0xA0, 0xBF },
   [0xED] = { 0x80, 0x9F },
   [0xF0] = { 0x90, 0xBF },
   [0xF4] = { 0x80, 0x8F },
}

--- How many bytes the valid multi-byte sequence at the start of `run` has; 0 when there is none.
local function sequence_length(run)
   local lead, second, third, fourth = run:byte(1, 4)
   local range = SECOND_BYTE[lead] or { 0x80, 0xBF }
   if lead < 0xC2 or lead > 0xF4 or not second or second < range[1] or second > range[2] then
      return 0
   elseif lead < 0xE0 then
      return 2
   elseif lead < 0xF0 then
      return is_continuation(third) and 3 or 0
   end
   return is_continuation(third) and is_continuation(fourth) and 4 or 0
end

--- What stands for a byte above 127 and the continuations behind it: false when they are a character.
local function repair(run)
   local length = sequence_length(run)
   return length < #run and run:sub(1, length) .. ("?"):rep(#run - length)
end

--- Repairs, each worked out once for one text: a text has few different characters, a lookup is in C.
local REPAIRS = {
   __index = function(known, run)
      known[run] = repair(run)
      return known[run]
   end,
}

--- The first `limit` bytes, without the front half of a character that the limit cuts through.
local function cut(value, limit)
   local last = limit
   while last > limit - 3 and last > 0 and is_continuation(value:byte(last + 1)) do
      last = last - 1
   end
   return value:sub(1, last)
end

--- `value` as valid UTF-8 of at most `limit` bytes: each byte that is not valid becomes "?".
function text.clean(value, limit)
   if #value > limit then
      value = cut(value, limit)
   end
   -- The match of the longest ASCII start is four times as fast as a search for the first other byte.
   local _, ascii_bytes = value:find("^[^\128-\255]*")
   if ascii_bytes == #value then
      return value
   end
   return (value:gsub("[\128-\255][\128-\191]*", setmetatable({}, REPAIRS)))
end

--- Whether `value` holds printable ASCII alone.
function text.is_printable_ascii(value)
   return not value:find("[^\32-\126]")
end

--- Whether `value` may be shown on a terminal: valid UTF-8 without control characters, C1 included.
function text.is_displayable(value)
   if value:find("[^\32-\126\128-\255]") or value:find("\194[\128-\159]") then
      return false
   end
   return text.clean(value, #value) == value
end

return text
