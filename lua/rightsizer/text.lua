--- Cuts text to what the wire takes, and checks whether text from the wire is safe to show.
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

--- Returns the length in bytes of the valid multi-byte sequence at the start of `run`; 0 if there is none.
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

--- Returns `value` if it is text that says something, else nil: Slurm's unset strings read as nil or empty.
function text.given(value)
   return type(value) == "string" and value ~= "" and value or nil
end

--- Returns at most the first `limit` bytes, without the front part of a character that the limit cuts
-- through.
function text.cut(value, limit)
   if #value <= limit then
      return value
   end
   local last = limit
   while last > limit - 3 and last > 0 and is_continuation(value:byte(last + 1)) do
      last = last - 1
   end
   return value:sub(1, last)
end

--- Returns the first and the last `limit` bytes, the latter from the start of a line if one begins in them.
-- A value no longer than both stays whole. Otherwise the last part begins after `limit` bytes and a line end.
function text.ends(value, limit)
   if #value <= 2 * limit then
      return value
   end
   local first, last = text.cut(value, limit), value:sub(-limit)
   return first .. ("\n"):rep(limit - #first + 1) .. last:sub((last:find("\n", 1, true) or 0) + 1)
end

local function is_utf8(value)
   for run in value:gmatch("[\128-\255][\128-\191]*") do
      if sequence_length(run) < #run then
         return false
      end
   end
   return true
end

--- Whether `value` holds printable ASCII alone. Anchored: a search would start anew at every byte.
function text.is_printable_ascii(value)
   return value:find("^[\32-\126]*$") ~= nil
end

--- Whether `value` may be shown on a terminal: valid UTF-8 without control characters, C1 included.
function text.is_displayable(value)
   if text.is_printable_ascii(value) then
      return true
   elseif value:find("[^\32-\126\128-\255]") or value:find("\194[\128-\159]") then
      return false
   end
   return is_utf8(value)
end

return text
